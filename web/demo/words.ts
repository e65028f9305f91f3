// Everything that the demo says, in English and Japanese. What the elements say is their own.

const ENGLISH = {
  title: 'Leasehold demo',
  skip: 'Skip to the scenes',
  signed_in_as: 'Signed in as',
  language: 'Language',
  locks: 'All locks',
  step_type: 'Type in a scene',
  step_type_text: 'It is saved in this browser two seconds after you stop, and every version is kept.',
  step_tab: 'Open a second tab',
  step_tab_text: 'It can read, ask for the storyboard or take it over. Only one of them edits.',
  second: 'Second tab, as {name}',
  step_break: 'Break something',
  step_break_text: 'Nothing that was saved is lost, and nobody overwrites anybody.',
  storyboard: 'Storyboard',
  editing: 'You are editing.',
  editing_text: 'This tab has both locks: of the project in this browser, and of the document at the server.',
  reading: 'Read-only.',
  starting: 'One moment.',
  starting_text: 'This tab is asking for its locks.',
  other_tab: 'Another tab of this browser edits.',
  other_person: '{name} edits, in another tab or on another machine.',
  document_free: 'Nobody has the document now. “Edit” above brings it back.',
  document_away: 'The server cannot be asked who edits.',
  project_free: 'The project is free now. “Edit here” above brings it back.',
  not_renewed: 'This tab could not renew its lock. “Try again” above brings it back.',
  no_files: 'This window cannot keep files.',
  draft: 'What this tab could not save is kept as a draft.',
  draft_show: 'Show it',
  draft_discard: 'Discard it',
  scene: 'Scene {number}',
  scene_title: 'Title of scene {number}',
  scene_text: 'What happens in scene {number}',
  up: 'Move scene {number} up',
  down: 'Move scene {number} down',
  remove: 'Delete scene {number}',
  add: 'Add a scene',
  new_title: 'New scene',
  draft_title: 'What was not saved',
  break: 'Break something',
  lose: 'Lose the lock',
  lose_text: '{name} ends your lock at the server, as an administrator could. This tab becomes read-only and keeps what is unsaved.',
  lose_reason: 'to show what happens then',
  full: 'Fill the disk',
  full_text: 'Every save fails for lack of space. Old versions make room first; then the indicator says that nothing is saved.',
  heart: 'Kill the heartbeat',
  heart_text: 'Neither lock can be renewed. Within 30 seconds this tab stops by itself, before anybody else can begin.',
  socket: 'Cut the socket',
  socket_text: 'No events arrive. The lock stays: a connection that is lost says nothing about its holder.',
  freeze: 'Freeze',
  freeze_text: 'Everything in this tab stands still for {seconds} seconds, as when a laptop sleeps. The second tab may take over meanwhile.',
  asleep: 'This tab is asleep. It wakes in {seconds} s. Look at the other one.',
  on: 'on: press again to end it',
  failed: 'That did not work: {why}',
  events: 'Events',
  events_empty: 'What happens to the locks appears here.',
  dialect: 'Dialect of the events',
  dialect_lock: 'The project lock, every step of it.',
  dialect_service: 'The same events in the words of an application service.',
  dialect_autosave: 'The same events in the words of the autosave.',
  dialect_documents: 'The document lock, as the server publishes it to everybody.',
  unreachable: 'The server cannot be reached. Start it and reload this page.',
  not_dev: 'This server has no made-up users. Start it with --dev.',
  sample_1: 'A lighthouse at dusk', sample_1_text: 'Rain. The keeper climbs the stairs, a lamp in her hand.',
  sample_2: 'The letter', sample_2_text: 'She reads it twice and puts it back.',
  sample_3: 'Morning', sample_3_text: 'A boat at the pier. Nobody is in it.',
};

type Key = keyof typeof ENGLISH;

const JAPANESE: Record<Key, string> = {
  title: 'Leasehold デモ',
  skip: 'シーンへ移動',
  signed_in_as: 'ログイン中',
  language: '言語',
  locks: 'すべてのロック',
  step_type: 'シーンに入力する',
  step_type_text: '入力が止まって 2 秒後に、このブラウザに保存されます。どの版も残ります。',
  step_tab: '2 つ目のタブを開く',
  step_tab_text: '読む、譲渡を頼む、引き継ぐ、ができます。編集するのは 1 つだけです。',
  second: '2 つ目のタブ（{name}）',
  step_break: '壊してみる',
  step_break_text: '保存したものは失われず、誰も誰かの作業を上書きしません。',
  storyboard: '絵コンテ',
  editing: '編集中です。',
  editing_text: 'このタブは両方のロックを持っています。ブラウザ内のプロジェクトと、サーバー上の文書です。',
  reading: '閲覧専用です。',
  starting: 'お待ちください。',
  starting_text: 'ロックを取得しています。',
  other_tab: 'このブラウザの別のタブが編集中です。',
  other_person: '{name} さんが別のタブか別の端末で編集中です。',
  document_free: '文書のロックは空いています。上の「編集する」で取り戻せます。',
  document_away: '誰が編集中か、サーバーに確認できません。',
  project_free: 'プロジェクトは空いています。上の「ここで編集」で取り戻せます。',
  not_renewed: 'このタブはロックを更新できませんでした。上の「再試行」で取り戻せます。',
  no_files: 'このウィンドウではファイルを保存できません。',
  draft: 'このタブで保存できなかった内容は下書きとして残っています。',
  draft_show: '表示する',
  draft_discard: '破棄する',
  scene: 'シーン {number}',
  scene_title: 'シーン {number} のタイトル',
  scene_text: 'シーン {number} の内容',
  up: 'シーン {number} を前へ移動',
  down: 'シーン {number} を後ろへ移動',
  remove: 'シーン {number} を削除',
  add: 'シーンを追加',
  new_title: '新しいシーン',
  draft_title: '未保存だった内容',
  break: '壊してみる',
  lose: 'ロックを失う',
  lose_text: '管理者のように、{name} さんがサーバー上のロックを終了させます。このタブは閲覧専用になり、未保存の内容は残ります。',
  lose_reason: '何が起きるかを見せるため',
  full: 'ディスクを満杯にする',
  full_text: '空き容量不足で保存が失敗します。まず古い版が削除され、それでも足りなければ保存できないと表示されます。',
  heart: 'ハートビートを止める',
  heart_text: 'どちらのロックも更新できません。30 秒以内に、他の人が始める前に、このタブは自分で止まります。',
  socket: 'ソケットを切る',
  socket_text: 'イベントが届きません。ロックは残ります。接続が切れても、持ち主がいなくなったとは限りません。',
  freeze: '凍結する',
  freeze_text: 'ノート PC のスリープのように、このタブの動作を {seconds} 秒止めます。その間に 2 つ目のタブが引き継げます。',
  asleep: 'このタブは眠っています。あと {seconds} 秒で目覚めます。もう一方のタブを見てください。',
  on: '有効：もう一度押すと終わります',
  failed: 'できませんでした：{why}',
  events: 'イベント',
  events_empty: 'ロックに起きたことがここに表示されます。',
  dialect: 'イベントの方言',
  dialect_lock: 'プロジェクトロックの、すべての段階。',
  dialect_service: '同じイベントを、アプリケーションサービスの言葉で。',
  dialect_autosave: '同じイベントを、自動保存の言葉で。',
  dialect_documents: '文書ロックのイベント。サーバーが全員に知らせるものです。',
  unreachable: 'サーバーに接続できません。起動してから再読み込みしてください。',
  not_dev: 'このサーバーには仮のユーザーがいません。--dev を付けて起動してください。',
  sample_1: '夕暮れの灯台', sample_1_text: '雨。灯台守がランプを手に階段を上る。',
  sample_2: '手紙', sample_2_text: '二度読み、元の場所に戻す。',
  sample_3: '朝', sample_3_text: '桟橋に小舟。誰も乗っていない。',
};

/** All words, by language. */
export const WORDS: Record<'en' | 'ja', Record<Key, string>> = { en: ENGLISH, ja: JAPANESE };

const LANGUAGE = 'leasehold.language';
let language: 'en' | 'ja' = 'en';

/** The language that was chosen, here or on the page at `/`, or else the browser's. */
export function beginLanguage(): void {
  let chosen: string | null = null;
  try {
    chosen = localStorage.getItem(LANGUAGE);
  } catch {
    // A browser that keeps nothing for this site has its own language.
  }
  use(chosen ?? navigator.language);
}

/** Changes the language, also for later visits. */
export function chooseLanguage(chosen: string): void {
  use(chosen);
  try {
    localStorage.setItem(LANGUAGE, language);
  } catch {
    // For this visit only.
  }
}

function use(chosen: string): void {
  language = chosen.startsWith('ja') ? 'ja' : 'en';
  document.documentElement.lang = language;
}

export function currentLanguage(): 'en' | 'ja' {
  return language;
}

/** The words under this key, with values for the names in braces. */
export function say(key: Key, values: Record<string, string | number> = {}): string {
  return WORDS[language][key].replace(/\{(\w+)\}/g, (whole, name: string) => String(values[name] ?? whole));
}

/** Writes the words into every node that asks for some. */
export function writeWords(): void {
  for (const node of document.querySelectorAll<HTMLElement>('[data-say]')) node.textContent = say(node.dataset['say'] as Key);
}
