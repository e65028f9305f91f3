// Makes the elements' nodes. Never from strings of HTML: content of users is shown, and pages may forbid it by Trusted Types.

type Attributes = Readonly<Record<string, string>>;

/** An element with its attributes and children. */
export function make<Tag extends keyof HTMLElementTagNameMap>(
  tag: Tag, attributes: Attributes = {}, ...children: (Node | string)[]
): HTMLElementTagNameMap[Tag] {
  const element = document.createElement(tag);
  setAll(element, attributes);
  element.append(...children);
  return element;
}

/** Sets attributes. */
export function setAll(element: Element, attributes: Attributes): void {
  for (const [name, value] of Object.entries(attributes)) set(element, name, value);
}

/** A button. By its name the focus is found again when buttons are made anew. */
export function button(part: string, text: string, press: () => void, name = part): HTMLButtonElement {
  const made = make('button', { type: 'button', part: `button ${part}`, 'data-name': name }, text);
  made.addEventListener('click', () => { if (!isDisabled(made)) press(); });
  return made;
}

/** Replaces nodes by others. The focus goes to the button with the same name, or else to `otherwise`. */
export function redraw(root: ShadowRoot, otherwise: HTMLElement, replace: () => void): void {
  const had = (root.activeElement as HTMLElement | null)?.dataset['name'];
  replace();
  if (had && !root.activeElement) focus(root, had, otherwise);
}

/** Gives the focus to the button with this name, or else to `otherwise`. */
export function focus(root: ShadowRoot, name: string, otherwise: HTMLElement): void {
  (root.querySelector<HTMLElement>(`[data-name="${CSS.escape(name)}"]`) ?? otherwise).focus();
}

/** Disables a button so that it keeps the focus and can be read. */
export function disable(made: HTMLButtonElement, is: boolean): void {
  made.setAttribute('aria-disabled', String(is));
}

function isDisabled(made: HTMLButtonElement): boolean {
  return made.getAttribute('aria-disabled') === 'true';
}

/** A drawing of 16 x 16, in the colour of the text. */
export function drawing(): { readonly node: SVGElement; draw(path: string): void } {
  const [node, line] = (['svg', 'path'] as const).map((tag) => document.createElementNS('http://www.w3.org/2000/svg', tag));
  node!.setAttribute('viewBox', '0 0 16 16');
  node!.append(line!);
  return { node: node as SVGElement, draw: (path) => { set(line!, 'd', path); } };
}

/** Sets an attribute, if it is another. */
export function set(element: Element, name: string, value: string): void {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

/** Sets the text, if it is another: the same text again would be announced again. */
export function write(node: Node, text: string): void {
  if (node.textContent !== text) node.textContent = text;
}

/** A modal dialog whose first line is its name, and which closes by a click beside it as well. */
export function dialog(part: string, ...children: Node[]): HTMLDialogElement {
  const made = make('dialog', { part }, ...children);
  made.addEventListener('click', (event) => {
    const { left, right, top, bottom } = made.getBoundingClientRect();
    const { clientX: x, clientY: y } = event;
    // A press of Enter on a button is a click at 0, 0, on the button.
    if (event.target === made && (x < left || x > right || y < top || y > bottom)) made.close();
  });
  return made;
}
