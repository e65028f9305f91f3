// Who uses this tab: one of the server's made-up users. The choice is this tab's own and survives a reload; `?user=` makes it for a
// tab that is opened by a link.

/** A made-up user. */
export interface User {
  readonly id: string;
  readonly name: string;
  readonly token: string;
}

const USER = 'leasehold.user';

/** The users of the server; none if it has real ones. */
export async function readUsers(): Promise<readonly User[]> {
  const response = await fetch('/page/sign-in');
  const { users } = await response.json() as { users: User[] };
  return users;
}

/** Who uses this tab. */
export function chosenUser(users: readonly User[]): User | undefined {
  const address = new URL(location.href);
  const named = address.searchParams.get('user');
  if (named !== null) {
    keepUser(named);
    address.searchParams.delete('user');
    history.replaceState(null, '', address);
  }
  return users.find(({ id }) => id === sessionStorage.getItem(USER)) ?? users[0];
}

/** Chooses a user for this tab, from the next load on. */
export function keepUser(id: string): void {
  sessionStorage.setItem(USER, id);
}

/** The address of a tab of this user. */
export function addressFor({ id }: User): string {
  return `/demo?user=${encodeURIComponent(id)}`;
}

/** Ends the lock that another user holds on a document, as this user and for this reason. */
export async function endLock(user: User, room: string, reason: string): Promise<void> {
  const address = `/api/documents/${encodeURIComponent(room)}/lock`;
  const headers = { authorization: `Bearer ${user.token}`, 'content-type': 'application/json' };
  const { fence } = await (await fetch(address, { headers })).json() as { fence?: number };
  const body = JSON.stringify({ fence, reason });
  const response = await fetch(`${address}/force-release`, { method: 'POST', headers, body });
  if (!response.ok) throw new Error(((await response.json()) as { title?: string }).title ?? `HTTP ${response.status}`);
}
