// An application's own socket: Laravel Echo and pusher-js, as they come from npm.

import Echo from 'laravel-echo';
import Pusher from 'pusher-js';
import type { EchoLike } from '../../src/documents/types.js';

/** Echo, connected to this server as the user of the token. */
export function makeEcho(server: string, token: string): EchoLike {
  const { hostname, port } = new URL(server);
  return new Echo({
    broadcaster: 'reverb', key: 'leasehold', wsHost: hostname, wsPort: Number(port), forceTLS: false, enabledTransports: ['ws'],
    authEndpoint: `${server}/broadcasting/auth`, bearerToken: token, Pusher,
  }) as unknown as EchoLike;
}
