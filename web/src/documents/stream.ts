// Parses a stream of server-sent events. `fetch` instead of `EventSource`: it can send a token and the id of the last event, it
// sees the status of a refusal, and it sees the comments by which a silent server shows that it is there.

/** The server sends a comment every 15 s. After so long without one, the connection is dead. */
const SILENCE_MS = 40_000;

/** Reads a response to its end; calls `hear` for every event. `end` is called if the server has been silent for too long. */
export async function readEvents(response: Response, end: () => void, hear: (name: string, data: unknown) => void): Promise<void> {
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let silence = setTimeout(end, SILENCE_MS);
  let text = '';
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(silence);
      silence = setTimeout(end, SILENCE_MS);
      const messages = (text + value).split('\n\n');
      text = messages.pop()!; // the rest of it is on its way
      for (const message of messages) {
        const field = (name: string) => new RegExp(`^${name}: ?(.*)$`, 'm').exec(message)?.[1];
        const data = field('data');
        if (data !== undefined) hear(field('event') ?? '', JSON.parse(data));
      }
    }
  } finally {
    clearTimeout(silence);
  }
}
