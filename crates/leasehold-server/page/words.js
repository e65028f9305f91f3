// Everything that the page says, in English and Japanese, and times as people say them.

const ENGLISH = {
  skip: 'Skip to the locks',
  language: 'Language',
  api: 'API',
  demo: 'Demo',
  signed_in_as: 'Signed in as',
  sign_in: 'Sign in',
  sign_out: 'Sign out',
  sign_in_title: 'Sign in with a token',
  sign_in_text: 'Paste a token (JWT) that this server accepts. It is kept in this tab only, until you close it or sign out.',
  token: 'Token',
  token_missing: 'Paste a token first.',
  anonymous: 'Open server: no sign-in',
  live: 'Live',
  connecting: 'Connecting…',
  reconnecting: 'Reconnecting…',
  unreachable: 'The server cannot be reached.',
  stale: (v) => `You see how things were ${v.ago}. Trying again ${v.next}.`,
  trying_again: (v) => `Trying again ${v.next}.`,
  in_seconds: (v) => (v.seconds > 0 ? `in ${v.seconds} s` : 'now'),
  try_now: 'Try now',
  too_many: 'The server asks this page to slow down.',
  token_expired: 'Your token has expired. Sign in with a new one.',
  locks: 'Locks',
  lock_label: 'Document to lock',
  lock_hint: 'Document, e.g. minutes',
  lock: 'Lock',
  room_missing: 'Write the name of a document first.',
  filter: 'Filter by document or name',
  filter_hint: 'Filter  ( / )',
  document: 'Document',
  holder: 'Holder',
  since: 'Since',
  left: 'Time left',
  actions: 'Actions',
  you: 'you',
  you_elsewhere: 'you, elsewhere',
  leaving: 'leaving',
  expired: 'expired',
  more: (v) => `${v.count} more. Type in the filter to find them.`,
  no_match: (v) => `No lock matches “${v.filter}”.`,
  clear_filter: 'Clear the filter',
  empty_title: 'Nothing is locked',
  empty_text: 'Lock a document above, or from a terminal. It appears here at once:',
  copy: 'Copy the command',
  copied: 'Copied',
  loading: 'Loading…',
  looking: (v) => `${v.names} ${v.count === 1 ? 'is' : 'are'} looking`,
  and_others: (v) => `${v.names} and ${v.count} more`,
  ask: 'Ask',
  take_over: 'Take over',
  release: 'Release',
  withdraw: 'Withdraw',
  hand_over: 'Hand over',
  keep: 'Keep it',
  about: (v) => `${v.action}: ${v.room}`,
  asks_you: (v) => `${v.name} asks for it`,
  asks: (v) => `${v.name} asks for it`,
  you_ask: (v) => `You asked ${v.name}`,
  not_told: 'not seen yet',
  answer_left: (v) => `${v.left} to answer`,
  take_over_title: (v) => `Take over ${v.room}`,
  take_over_text: (v) => `${v.name} loses the lock at once, sees your reason, and it is kept in the audit.`,
  release_title: (v) => `End the lock on ${v.room}`,
  release_text: (v) => `${v.name} loses the lock at once and nobody holds it. ${v.name} sees your reason, and it is kept in the audit.`,
  end_lock: 'End the lock',
  ask_title: (v) => `Ask for ${v.room}`,
  ask_text: (v) => `${v.name} is asked to save and hand over, and has 30 seconds to answer after seeing your request.`,
  ask_do: 'Ask',
  reason: 'Reason',
  reason_missing: 'Say why; the holder sees it.',
  silence: 'If there is no answer',
  silence_refuse: (v) => `it stays with ${v.name}`,
  silence_grant: 'I get the lock',
  cancel: 'Cancel',
  events: 'Events',
  events_empty: 'What happens from now on appears here.',
  audit: 'Audit',
  audit_empty: 'No take-overs and no forced releases.',
  audit_none: 'This server keeps no audit.',
  e_locked: () => `{name} locked {room}`,
  e_released: () => `{name} released {room}`,
  e_expired: () => `{room} expired; {name} held it`,
  e_disconnected: () => `{name} left {room} and did not come back`,
  e_taken: () => `{by} took {room} from {name}`,
  e_ended: () => `{by} ended {name}’s lock on {room}`,
  e_handed: () => `{name} handed {room} over to {by}`,
  e_leaving: () => `{name} is leaving {room}`,
  e_back: () => `{name} is back on {room}`,
  e_asks: () => `{by} asks {name} for {room}`,
  e_told: () => `{name} knows that {by} asks for {room}`,
  e_kept: () => `{name} keeps {room}; {by} had asked`,
  e_withdrawn: () => `{by} no longer asks for {room}`,
  t_locked: (v) => `${v.room} is yours.`,
  t_released: (v) => `${v.room} is released.`,
  t_ended: (v) => `The lock on ${v.room} has ended.`,
  t_asked: (v) => `${v.name} is asked for ${v.room}.`,
  t_request: (v) => `${v.name} asks you for ${v.room}.`,
  t_lost: (v) => `You no longer hold ${v.room}.`,
  t_kept: (v) => `${v.name} keeps ${v.room}.`,
  t_over: (v) => `Your request for ${v.room} is over.`,
  t_withdrawn: (v) => `You no longer ask for ${v.room}.`,
  t_failed: (v) => `${v.room}: ${v.why}`,
  offline: 'The server cannot be reached. Try again in a moment.',
  someone: 'another user',
};

const JAPANESE = {
  skip: 'ロック一覧へ移動',
  language: '言語',
  api: 'API',
  demo: 'デモ',
  signed_in_as: 'サインイン中のユーザー',
  sign_in: 'サインイン',
  sign_out: 'サインアウト',
  sign_in_title: 'トークンでサインイン',
  sign_in_text: 'このサーバーが受け付けるトークン（JWT）を貼り付けてください。トークンはこのタブだけに保存され、タブを閉じるかサインアウトすると消えます。',
  token: 'トークン',
  token_missing: '先にトークンを貼り付けてください。',
  anonymous: '認証なしのサーバー',
  live: '接続中',
  connecting: '接続しています…',
  reconnecting: '再接続しています…',
  unreachable: 'サーバーに接続できません。',
  stale: (v) => `表示は${v.ago}の状態です。${v.next}再接続します。`,
  trying_again: (v) => `${v.next}再試行します。`,
  in_seconds: (v) => (v.seconds > 0 ? `${v.seconds} 秒後に` : 'すぐに'),
  try_now: '今すぐ再接続',
  too_many: 'サーバーから要求を減らすよう求められました。',
  token_expired: 'トークンの有効期限が切れました。新しいトークンでサインインしてください。',
  locks: 'ロック',
  lock_label: 'ロックする文書',
  lock_hint: '文書名（例: minutes）',
  lock: 'ロックする',
  room_missing: '先に文書名を入力してください。',
  filter: '文書名・名前で絞り込み',
  filter_hint: '絞り込み  ( / )',
  document: '文書',
  holder: '編集者',
  since: '開始',
  left: '残り時間',
  actions: '操作',
  you: '自分',
  you_elsewhere: '自分（別の画面）',
  leaving: '退出中',
  expired: '期限切れ',
  more: (v) => `ほかに ${v.count} 件あります。絞り込みで探せます。`,
  no_match: (v) => `「${v.filter}」に一致するロックはありません。`,
  clear_filter: '絞り込みを解除',
  empty_title: 'ロックされている文書はありません',
  empty_text: '上の欄か端末から文書をロックすると、すぐにここに表示されます。',
  copy: 'コマンドをコピー',
  copied: 'コピーしました',
  loading: '読み込んでいます…',
  looking: (v) => `${v.names}が閲覧中`,
  and_others: (v) => `${v.names}ほか ${v.count} 人`,
  ask: '依頼',
  take_over: '引き継ぐ',
  release: '解放',
  withdraw: '取り下げ',
  hand_over: '譲る',
  keep: '譲らない',
  about: (v) => `${v.action}: ${v.room}`,
  asks_you: (v) => `${v.name}さんが依頼しています`,
  asks: (v) => `${v.name}さんが依頼中`,
  you_ask: (v) => `${v.name}さんに依頼中`,
  not_told: '未確認',
  answer_left: (v) => `回答まで ${v.left}`,
  take_over_title: (v) => `${v.room} を引き継ぐ`,
  take_over_text: (v) => `${v.name}さんはすぐにロックを失います。理由は${v.name}さんに表示され、監査記録に残ります。`,
  release_title: (v) => `${v.room} のロックを終了`,
  release_text: (v) => `${v.name}さんはすぐにロックを失い、誰もロックしていない状態になります。理由は${v.name}さんに表示され、監査記録に残ります。`,
  end_lock: 'ロックを終了',
  ask_title: (v) => `${v.room} を依頼`,
  ask_text: (v) => `${v.name}さんに、保存して譲るよう依頼します。依頼を見てから 30 秒以内に回答できます。`,
  ask_do: '依頼する',
  reason: '理由',
  reason_missing: '理由を入力してください。編集者に表示されます。',
  silence: '回答がない場合',
  silence_refuse: (v) => `${v.name}さんのまま`,
  silence_grant: '自分がロックを得る',
  cancel: 'キャンセル',
  events: 'イベント',
  events_empty: 'これから起きることがここに表示されます。',
  audit: '監査',
  audit_empty: '引き継ぎと強制解放はありません。',
  audit_none: 'このサーバーは監査記録を残していません。',
  e_locked: () => '{name}さんが {room} をロックしました',
  e_released: () => '{name}さんが {room} を解放しました',
  e_expired: () => '{room} の期限が切れました（{name}さん）',
  e_disconnected: () => '{name}さんが {room} から離れ、戻りませんでした',
  e_taken: () => '{by}さんが {name}さんから {room} を引き継ぎました',
  e_ended: () => '{by}さんが {name}さんの {room} のロックを終了しました',
  e_handed: () => '{name}さんが {room} を {by}さんに譲りました',
  e_leaving: () => '{name}さんが {room} から離れています',
  e_back: () => '{name}さんが {room} に戻りました',
  e_asks: () => '{by}さんが {name}さんに {room} を依頼しています',
  e_told: () => '{name}さんが {by}さんの {room} の依頼を確認しました',
  e_kept: () => '{name}さんは {room} を譲りませんでした（依頼: {by}さん）',
  e_withdrawn: () => '{by}さんが {room} の依頼を取り下げました',
  t_locked: (v) => `${v.room} をロックしました。`,
  t_released: (v) => `${v.room} を解放しました。`,
  t_ended: (v) => `${v.room} のロックを終了しました。`,
  t_asked: (v) => `${v.name}さんに ${v.room} を依頼しました。`,
  t_request: (v) => `${v.name}さんが ${v.room} を依頼しています。`,
  t_lost: (v) => `${v.room} のロックを失いました。`,
  t_kept: (v) => `${v.name}さんは ${v.room} を譲りませんでした。`,
  t_over: (v) => `${v.room} の依頼は終了しました。`,
  t_withdrawn: (v) => `${v.room} の依頼を取り下げました。`,
  t_failed: (v) => `${v.room}: ${v.why}`,
  offline: 'サーバーに接続できません。しばらくしてからもう一度お試しください。',
  someone: '別のユーザー',
};

export const WORDS = { en: ENGLISH, ja: JAPANESE };
const KEPT = 'leasehold.language';

let language = localStorageGet(KEPT) ?? (navigator.language.startsWith('ja') ? 'ja' : 'en');
if (!(language in WORDS)) language = 'en';

/** The language of the page: `en` or `ja`. */
export function currentLanguage() {
  return language;
}

/** Changes the language, also for later visits. */
export function chooseLanguage(next) {
  language = next in WORDS ? next : 'en';
  try {
    localStorage.setItem(KEPT, language);
  } catch {
    // A browser that keeps nothing asks again the next time.
  }
}

function localStorageGet(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

/** The words for this key. */
export function say(key, values = {}) {
  const words = WORDS[language][key];
  return typeof words === 'function' ? words(values) : words ?? key;
}

/** The parts of a sentence with places in it: plain texts, and `{ place }` where something is put in. */
export function parts(key) {
  return say(key).split(/(\{\w+\})/).filter(Boolean).map((part) => (part.startsWith('{') ? { place: part.slice(1, -1) } : part));
}

/** How long ago: `12s ago`. */
export function ago(ms) {
  const format = new Intl.RelativeTimeFormat(language, { numeric: 'auto', style: 'narrow' });
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 60) return format.format(-seconds, 'second');
  if (seconds < 3600) return format.format(-Math.floor(seconds / 60), 'minute');
  if (seconds < 86_400) return format.format(-Math.floor(seconds / 3600), 'hour');
  return format.format(-Math.floor(seconds / 86_400), 'day');
}

/** A span of time: `24 s`, `1 min 05 s`. */
export function span(ms) {
  const seconds = Math.max(0, Math.ceil(ms / 1000));
  const [s, min, h] = language === 'ja' ? ['秒', '分', '時間'] : ['s', 'min', 'h'];
  if (seconds < 60) return `${seconds} ${s}`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} ${min} ${String(seconds % 60).padStart(2, '0')} ${s}`;
  return `${Math.floor(seconds / 3600)} ${h} ${String(Math.floor((seconds % 3600) / 60)).padStart(2, '0')} ${min}`;
}

/** Date and time of day. */
export function clock(date) {
  return new Intl.DateTimeFormat(language, { dateStyle: 'medium', timeStyle: 'medium' }).format(date);
}
