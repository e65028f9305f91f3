// The Japanese texts of `<document-lock>`.

import type { DocumentWords } from './document-words.js';

/** The texts. */
export const JAPANESE: DocumentWords = {
  label: '編集',
  connecting: '接続中…',
  free: '誰も編集していません',
  mine: 'あなたが編集中です',
  since: '開始',
  holds: (name) => `${name}さんが編集中です`,
  ownTab: '別のタブで編集中です',
  leaving: 'ページが閉じられました。数秒で編集できるようになります。',
  readonly: '閲覧専用',
  offline: '閲覧専用：サーバーに接続できません。再試行しています…',
  unavailable: 'この文書はロックできません',
  closed: '終了しました',
  requested: (name) => `${name}さんが編集を希望しています`,
  silence: (seconds, means) => `応答がない場合、${seconds}秒後に${means === 'grant' ? '引き渡します' : '拒否します'}。`,
  asked: (name) => `${name}さんに依頼しました`,
  waiting: (seconds) => `${seconds}秒以内に返答があります。`,
  lost: (reason, by, note) => {
    switch (reason) {
      case 'taken-over': return `${by ? `${by}さん` : '別のユーザー'}が引き継ぎました${note && `：「${note}」`}`;
      case 'force-released': return `${by ? `${by}さん` : '別のユーザー'}がロックを解除しました${note && `：「${note}」`}`;
      case 'handed-over': return `${by && `${by}さんに`}引き渡しました`;
      case 'offline': return '接続が長く途切れました';
      case 'reload-failed': return '最新の内容を読み込めませんでした';
      default: return 'ロックが終了しました';
    }
  },
  here: (names) => `閲覧中：${names}`,
  draft: '未保存の内容は残っています。',
  draftTitle: '未保存の内容',
  takeOverTitle: '編集を引き継ぎますか？',
  takeOverText: (name) => `${name}さんはすぐに閲覧専用になり、理由が表示されます。未保存の内容は下書きとして残ります。`,
  reason: '理由',
  failed: (why) => `できませんでした。${why}`,
  refused: '依頼は拒否されました',
  edit: '編集する',
  done: '完了',
  ask: '編集を依頼',
  withdraw: '取り下げる',
  takeOver: '引き継ぐ…',
  handOver: '保存して引き渡す',
  refuse: '拒否',
  show: '表示…',
  use: '使う',
  discard: '破棄',
  cancel: 'キャンセル',
  close: '閉じる',
};
