// The stream of a session by Connect.
import { toBinary } from '@bufbuild/protobuf'
import { Code, ConnectError } from '@connectrpc/connect'

import { sessions } from '../api/clients'
import { EventSchema } from '../gen/dressage/v1/event_pb'
import { WatchHub } from './hub'

export function createHub(): WatchHub {
  return new WatchHub({
    async *open(session, resumeToken, signal) {
      // No deadline: the console has one, and the stream then resumes.
      for await (const answer of sessions.watchSession({ name: session, resumeToken }, { signal, timeoutMs: 0 })) {
        if (answer.event !== undefined) {
          yield { event: toBinary(EventSchema, answer.event), resumeToken: answer.resumeToken }
        }
      }
    },
    classify(error) {
      const code = ConnectError.from(error).code
      if (code === Code.Unauthenticated || code === Code.PermissionDenied) return 'login'
      return code === Code.NotFound || code === Code.InvalidArgument ? 'missing' : 'offline'
    },
  })
}
