// What a tab uses to watch sessions: the shared worker, or a hub of its own where browsers have none.
import type { Batch, Sink } from './hub'
import type { FromTab } from './worker'

type Watch = { subscribe(session: string, sink: Sink): () => void; revive(session: string): void }

function shared(): Watch {
  const worker = new SharedWorker(new URL('./worker.ts', import.meta.url), { type: 'module', name: 'dressage-watch' })
  const sinks = new Map<string, Sink>()
  const send = (message: FromTab) => worker.port.postMessage(message)
  worker.port.onmessage = ({ data }: MessageEvent<Batch>) => sinks.get(data.session)?.(data)
  // Ports do not report that their tab is gone.
  addEventListener('pagehide', () => send({ kind: 'bye' }))
  addEventListener('pageshow', (event) => {
    if (event.persisted) location.reload()
  })
  return {
    subscribe(session, sink) {
      sinks.set(session, sink)
      send({ kind: 'watch', session })
      return () => {
        sinks.delete(session)
        send({ kind: 'leave', session })
      }
    },
    revive: (session) => send({ kind: 'revive', session }),
  }
}

let connection: Promise<Watch> | null = null

export function watchConnection(): Promise<Watch> {
  connection ??= 'SharedWorker' in globalThis ? Promise.resolve(shared()) : import('./open').then((module) => module.createHub())
  return connection
}
