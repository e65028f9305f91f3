// Every text of the elements, in English and in Japanese. A type sees to it that neither language lacks one.

import type { AutoSaveErrorCode, AutoSaveNotice, AutoSaveReadonly } from '../autosave/state.js';
import { size } from './format.js';
import { languageFor, type Language } from './language.js';

/** The texts of one language. */
export interface Words {
  readonly lang: Language;
  /** What all of it is about. */
  readonly autosave: string;
  // States of the indicator.
  readonly disabled: string;
  readonly dirty: string;
  readonly saving: string;
  readonly saved: string;
  readonly unchanged: string;
  readonly lastSaved: string;
  readonly releasing: string;
  readonly stopped: string;
  retrying(attempt: number, of: number): string;
  readonly error: Readonly<Record<AutoSaveErrorCode, string>>;
  /** By reason; `other` for any other. */
  readonly unavailable: Readonly<Record<string, string> & { other: string }>;
  conflict(holder: string): string;
  readonly readonly: Readonly<Record<Exclude<AutoSaveReadonly['reason'], 'conflict'>, string>>;
  readonly free: string;
  readonly kept: string;
  readonly draft: string;
  readonly editable: string;
  requested(tab: string, why: string): string;
  silence(seconds: number, means: 'grant' | 'refuse'): string;
  notice(notice: AutoSaveNotice, locale: string): string;
  // What a user can do about them, and meanwhile.
  readonly retry: string;
  readonly edit: string;
  readonly ask: string;
  readonly takeOver: string;
  readonly steps: string;
  readonly handOver: string;
  readonly refuse: string;
  readonly pending: Readonly<Record<'retry' | 'ask' | 'takeOver' | 'handOver' | 'refuse', string>>;
  readonly notHandedOver: string;
  readonly notTakenOver: string;
  readonly stillReadonly: string;
  readonly takeOverTitle: string;
  readonly takeOverText: string;
  readonly skewTitle: string;
  readonly skewText: string;
  readonly takeOverAnyway: string;
  readonly stepsTitle: string;
  manualSteps(said: string): string;
  readonly cancel: string;
  readonly close: string;
  // The history.
  readonly history: string;
  readonly open: string;
  readonly time: string;
  readonly bytes: string;
  readonly difference: string;
  readonly action: string;
  readonly current: string;
  readonly same: string;
  compared(difference: string): string;
  readonly loading: string;
  readonly empty: string;
  readonly failed: string;
  readonly gone: string;
  readonly preview: string;
  versionOf(time: string): string;
  shortened(shown: string, all: string): string;
  readonly back: string;
  readonly restore: string;
  readonly restoreText: string;
  readonly noRestore: string;
  readonly restoring: string;
  restored(time: string): string;
  readonly notRestored: string;
  readonly undo: string;
  readonly undone: string;
}

const ENGLISH: Words = {
  lang: 'en',
  autosave: 'AutoSave',
  disabled: 'AutoSave is off',
  dirty: 'Unsaved changes',
  saving: 'Saving…',
  saved: 'Saved',
  unchanged: 'No changes yet',
  lastSaved: 'Last saved',
  releasing: 'Releasing...',
  stopped: 'AutoSave has stopped',
  retrying: (attempt, of) => `Not saved yet, trying again (${attempt} of ${of})`,
  error: {
    'write-failed': 'Not saved: the file could not be written.',
    'no-space': 'Not saved: there is no space left. Free some space, then try again.',
    'not-serialisable': 'Not saved: the content cannot be stored.',
    'stale-base': 'Not saved: there is a newer version. Reload the page.',
  },
  unavailable: {
    'private-window-or-blocked-storage':
      'Nothing can be saved: this is a private window, or the storage of this site is blocked.',
    'insecure-context': 'Nothing can be saved: this page was not loaded over a secure connection.',
    'opaque-origin': 'Nothing can be saved: this page has no storage of its own.',
    other: 'Nothing can be saved: this browser gives this page no files.',
  },
  conflict: (holder) => (holder ? `Another tab is editing (${holder})` : 'Another tab is editing'),
  readonly: {
    timeout: 'Read-only: this tab did not get the project.',
    irrecoverable: 'Read-only: the project cannot be locked here.',
  },
  free: 'Read-only. The project is free now.',
  kept: 'Your changes stay in this tab.',
  draft: 'There is a draft.',
  editable: 'You can edit again.',
  requested: (tab, why) => `${tab ? `Another tab (${tab})` : 'Another tab'} asks to edit${why && `: ${why}`}`,
  silence: (seconds, means) => `${means === 'grant' ? 'Handed over' : 'Refused'} in ${seconds} s without an answer.`,
  notice: (notice, locale) => {
    switch (notice.kind) {
      case 'recovered': return notice.operation === 'save' ? 'Saved after trying again.' : 'The project was released.';
      case 'retries-failed':
        return notice.operation === 'save' ? 'Saving failed, also after trying again.' : 'The project could not be released.';
      case 'history-dropped':
        return `${notice.generations === 1 ? 'One old version was' : `${notice.generations} old versions were`} removed to make space.`;
      case 'history-failed': return 'Saved, but this version could not be kept in the history.';
      case 'space-low': return `Only ${size(notice.freeBytes, locale)} are left for this site.`;
      case 'draft-kept': return 'Another tab saved newer work, which was loaded. What you had is kept as a draft.';
      case 'restored': return 'A version was restored.';
    }
  },
  retry: 'Try again',
  edit: 'Edit here',
  ask: 'Ask to edit',
  takeOver: 'Take over…',
  steps: 'What to do…',
  handOver: 'Hand over',
  refuse: 'Refuse',
  pending: {
    retry: 'Trying again…',
    ask: 'Asked the other tab…',
    takeOver: 'Taking over…',
    handOver: 'Handing over…',
    refuse: 'Refusing…',
  },
  notHandedOver: 'The other tab did not hand over.',
  notTakenOver: 'The project could not be taken over.',
  stillReadonly: 'That did not help: the project is still read-only.',
  takeOverTitle: 'Take over editing?',
  takeOverText: 'The other tab becomes read-only at once. What it has not saved is not in this tab.',
  skewTitle: 'Is the other tab really gone?',
  skewText: 'The clocks disagree, so it is uncertain whether the other tab is still editing. '
    + 'Take over only if you are sure that nobody edits the project.',
  takeOverAnyway: 'Take over anyway',
  stepsTitle: 'The project was not released',
  manualSteps: (said) => said,
  cancel: 'Cancel',
  close: 'Close',
  history: 'Saved versions',
  open: 'History…',
  time: 'Time',
  bytes: 'Size',
  difference: 'Difference',
  action: 'Action',
  current: 'Current',
  same: 'Same size',
  compared: (difference) => `${difference} compared with the current version`,
  loading: 'Loading…',
  empty: 'There are no saved versions yet.',
  failed: 'The saved versions could not be read.',
  gone: 'This version is no longer there.',
  preview: 'Preview',
  versionOf: (time) => `Version of ${time}`,
  shortened: (shown, all) => `The first ${shown} of ${all} characters.`,
  back: 'Back',
  restore: 'Restore this version',
  restoreText: 'The present state is kept as a version first, so you can undo this.',
  noRestore: 'Restoring is not possible while the project is read-only.',
  restoring: 'Restoring…',
  restored: (time) => `Restored the version of ${time}.`,
  notRestored: 'The version could not be restored. Nothing was changed.',
  undo: 'Undo',
  undone: 'Restoring was undone.',
};

const JAPANESE: Words = {
  lang: 'ja',
  autosave: '自動保存',
  disabled: '自動保存はオフです',
  dirty: '未保存の変更があります',
  saving: '保存中…',
  saved: '保存済み',
  unchanged: '変更はまだありません',
  lastSaved: '最終保存',
  releasing: '解放中...',
  stopped: '自動保存は停止しました',
  retrying: (attempt, of) => `未保存です。再試行中（${attempt}/${of}）`,
  error: {
    'write-failed': '保存できませんでした：ファイルに書き込めません。',
    'no-space': '保存できませんでした：空き容量がありません。容量を空けて、もう一度お試しください。',
    'not-serialisable': '保存できませんでした：保存できない内容が含まれています。',
    'stale-base': '保存できませんでした：新しい版があります。ページを再読み込みしてください。',
  },
  unavailable: {
    'private-window-or-blocked-storage':
      '保存できません：プライベートウィンドウか、このサイトのデータ保存がブロックされています。',
    'insecure-context': '保存できません：安全な接続で読み込まれたページではありません。',
    'opaque-origin': '保存できません：このページには保存領域がありません。',
    other: '保存できません：このブラウザーではファイルを使えません。',
  },
  conflict: (holder) => (holder ? `別タブが編集中（${holder}）` : '別タブが編集中'),
  readonly: {
    timeout: '閲覧専用：このタブで編集権を取得できませんでした。',
    irrecoverable: '閲覧専用：プロジェクトをロックできません。',
  },
  free: '閲覧専用：編集できるようになりました。',
  kept: '変更内容はこのタブに残っています。',
  draft: '下書きがあります。',
  editable: '再び編集できます。',
  requested: (tab, why) => `別タブ${tab && `（${tab}）`}が編集を希望しています${why && `：${why}`}`,
  silence: (seconds, means) => `応答がない場合、${seconds}秒後に${means === 'grant' ? '引き渡します' : '拒否します'}。`,
  notice: (notice, locale) => {
    switch (notice.kind) {
      case 'recovered': return notice.operation === 'save' ? '再試行で保存できました。' : 'プロジェクトを解放しました。';
      case 'retries-failed':
        return notice.operation === 'save' ? '再試行しましたが、保存できませんでした。' : 'プロジェクトを解放できませんでした。';
      case 'history-dropped': return `容量を空けるため、古い履歴を${notice.generations}件削除しました。`;
      case 'history-failed': return '保存しましたが、履歴には残せませんでした。';
      case 'space-low': return `このサイトの空き容量は残り${size(notice.freeBytes, locale)}です。`;
      case 'draft-kept': return '別タブの新しい保存内容を読み込みました。このタブの内容は下書きとして残しています。';
      case 'restored': return '履歴から復元しました。';
    }
  },
  retry: '再試行',
  edit: 'ここで編集',
  ask: '編集を依頼',
  takeOver: '引き継ぐ…',
  steps: '対処方法…',
  handOver: '引き渡す',
  refuse: '拒否',
  pending: {
    retry: '再試行中…',
    ask: '別タブに依頼中…',
    takeOver: '引き継ぎ中…',
    handOver: '引き渡し中…',
    refuse: '拒否しています…',
  },
  notHandedOver: '別タブは編集を引き渡しませんでした。',
  notTakenOver: '引き継げませんでした。',
  stillReadonly: '再試行しましたが、閲覧専用のままです。',
  takeOverTitle: '編集を引き継ぎますか？',
  takeOverText: '別タブはすぐに閲覧専用になります。別タブで未保存の内容は、このタブには反映されません。',
  skewTitle: '別タブは本当に終了していますか？',
  skewText: '時計がずれているため、別タブが編集中かどうかを確認できません。誰も編集していないことが確かな場合だけ引き継いでください。',
  takeOverAnyway: 'それでも引き継ぐ',
  stepsTitle: 'プロジェクトを解放できませんでした',
  manualSteps: () => 'このプロジェクトを開いているタブとプログラムをすべて閉じてから、開き直してください。ロックは遅くとも期限が切れると引き継がれます。'
    + '直らない場合は、プロジェクトフォルダーの .lock を削除してください（.lock.guard は残してください）。',
  cancel: 'キャンセル',
  close: '閉じる',
  history: '保存履歴',
  open: '履歴…',
  time: '時刻',
  bytes: 'サイズ',
  difference: '現行比',
  action: '操作',
  current: '現行',
  same: '同じサイズ',
  compared: (difference) => `現行比 ${difference}`,
  loading: '読み込み中…',
  empty: '保存履歴はまだありません。',
  failed: '保存履歴を読み込めませんでした。',
  gone: 'この履歴はもうありません。',
  preview: 'プレビュー',
  versionOf: (time) => `${time} の内容`,
  shortened: (shown, all) => `全${all}文字のうち、先頭${shown}文字を表示しています。`,
  back: '戻る',
  restore: 'この内容を復元',
  restoreText: '現在の内容を履歴に残してから復元するので、元に戻せます。',
  noRestore: '閲覧専用のため、復元できません。',
  restoring: '復元中…',
  restored: (time) => `${time} の内容を復元しました。`,
  notRestored: '復元できませんでした。何も変更していません。',
  undo: '元に戻す',
  undone: '復元を取り消しました。',
};

/** The texts for a language tag. */
export function wordsFor(tag: string): Words {
  return languageFor(tag) === 'ja' ? JAPANESE : ENGLISH;
}
