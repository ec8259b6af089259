// The hub in a SharedWorker: one for all tabs.
import type { Batch } from './hub'
import { createHub } from './open'

export type FromTab = { kind: 'watch' | 'leave' | 'revive'; session: string } | { kind: 'bye' }

const hub = createHub()
const scope = self as unknown as { onconnect: ((event: MessageEvent) => void) | null }

scope.onconnect = (event) => {
  const port = event.ports[0]!
  const leave = new Map<string, () => void>()
  const sink = (batch: Batch) => port.postMessage(batch)
  port.onmessage = ({ data }: MessageEvent<FromTab>) => {
    if (data.kind === 'bye') {
      for (const stop of leave.values()) stop()
      leave.clear()
    } else if (data.kind === 'watch' && !leave.has(data.session)) {
      leave.set(data.session, hub.subscribe(data.session, sink))
    } else if (data.kind === 'leave') {
      leave.get(data.session)?.()
      leave.delete(data.session)
    } else if (data.kind === 'revive') {
      hub.revive(data.session)
    }
  }
}
