// One watcher for all tabs of a browser. Browsers open six connections for a host, so streams are few: each session is watched
// once, however many tabs show it, and beyond the limit the streams take turns. A stream resumes by its token, so nothing is
// lost when it ends, the server restarts or another session has its turn.

/** One event as bytes of `dressage.v1.Event`. */
export type Batch = { session: string; events: Uint8Array[]; status: Status }
export type Status = 'connecting' | 'live' | 'ended' | 'offline' | 'login' | 'missing'
export type Sink = (batch: Batch) => void

/** Opens the stream of a session; ends when the session has ended. */
export type Open = (
  session: string,
  resumeToken: string,
  signal: AbortSignal,
) => AsyncIterable<{ event: Uint8Array; resumeToken: string }>
/** What an error of a stream means. */
export type Classify = (error: unknown) => 'offline' | 'login' | 'missing'

type Watched = {
  session: string
  events: Uint8Array[]
  token: string
  status: Status
  sinks: Map<Sink, number>
  abort: AbortController | null
  retryAt: number
  retries: number
  slice: number
}

export type HubOptions = {
  open: Open
  classify: Classify
  /** Streams at the same time. */
  maxStreams?: number
  /** How long a stream may stay while others wait, in ms. */
  sliceMs?: number
  /** How long a session is kept after its last tab left, in ms. */
  keepMs?: number
  /** Time between two deliveries to a tab, in ms. */
  batchMs?: number
}

const MAX_RETRY_MS = 5_000
const SETTLED_MS = 1_500

export class WatchHub {
  private readonly watched = new Map<string, Watched>()
  private readonly leaving = new Map<string, ReturnType<typeof setTimeout>>()
  private flushTimer: ReturnType<typeof setTimeout> | null = null
  private scheduleTimer: ReturnType<typeof setTimeout> | null = null

  constructor(private readonly options: HubOptions) {}

  /** Deliver all events of a session, recorded and new, until the returned function is called. */
  subscribe(session: string, sink: Sink): () => void {
    clearTimeout(this.leaving.get(session))
    this.leaving.delete(session)
    let entry = this.watched.get(session)
    if (entry === undefined) {
      entry = { session, events: [], token: '', status: 'connecting', sinks: new Map(), abort: null, retryAt: 0, retries: 0, slice: 0 }
      this.watched.set(session, entry)
    }
    entry.sinks.set(sink, 0)
    if (entry.status === 'missing' || entry.status === 'login') entry.status = 'connecting'
    this.flushSoon()
    this.schedule()
    return () => this.unsubscribe(session, sink)
  }

  /** Watch an ended session again, after it was resumed. */
  revive(session: string): void {
    const entry = this.watched.get(session)
    if (entry === undefined || entry.abort !== null) return
    entry.status = 'connecting'
    entry.retryAt = 0
    this.schedule()
  }

  get openStreams(): number {
    return [...this.watched.values()].filter((entry) => entry.abort !== null).length
  }

  private unsubscribe(session: string, sink: Sink): void {
    const entry = this.watched.get(session)
    entry?.sinks.delete(sink)
    if (entry === undefined || entry.sinks.size > 0) return
    this.leaving.set(
      session,
      setTimeout(() => {
        entry.abort?.abort()
        this.watched.delete(session)
        this.leaving.delete(session)
        this.schedule()
      }, this.options.keepMs ?? 15_000),
    )
  }

  /** Open streams for the sessions that wait for one; end the one that had its turn. */
  private schedule(): void {
    if (this.scheduleTimer !== null) clearTimeout(this.scheduleTimer)
    this.scheduleTimer = null
    const now = Date.now()
    const limit = this.options.maxStreams ?? 3
    const entries = [...this.watched.values()]
    const waiting = entries
      .filter((entry) => entry.abort === null && (entry.status === 'connecting' || entry.status === 'offline'))
      .sort((a, b) => a.slice - b.slice)
    const ready = waiting.filter((entry) => entry.retryAt <= now)
    const open = entries.filter((entry) => entry.abort !== null).sort((a, b) => a.slice - b.slice)
    const slice = this.options.sliceMs ?? 2_000
    while (ready.length > 0 && open.length < limit) {
      const next = ready.shift()!
      open.push(next)
      void this.follow(next)
    }
    const oldest = open[0]
    if (ready.length > 0 && oldest !== undefined && now - oldest.slice >= slice) {
      // Its turn is over; it waits for the next one.
      oldest.status = 'connecting'
      oldest.abort?.abort()
      return // its end schedules again
    }
    const times = waiting.map((entry) => entry.retryAt - now).filter((time) => time > 0)
    if (ready.length > 0 && oldest !== undefined) times.push(slice - (now - oldest.slice))
    if (times.length > 0) this.scheduleTimer = setTimeout(() => this.schedule(), Math.max(10, Math.min(...times)))
  }

  private async follow(entry: Watched): Promise<void> {
    const abort = new AbortController()
    entry.abort = abort
    entry.slice = Date.now()
    // An idle stream sends nothing, not even headers: one that has not failed for a while counts as open.
    const settled = setTimeout(() => {
      entry.status = 'live'
      entry.retries = 0
      this.flushSoon()
    }, SETTLED_MS)
    try {
      for await (const message of this.options.open(entry.session, entry.token, abort.signal)) {
        entry.events.push(message.event)
        entry.token = message.resumeToken
        entry.status = 'live'
        entry.retries = 0
        this.flushSoon()
      }
      entry.status = 'ended'
    } catch (error) {
      if (!abort.signal.aborted) {
        entry.status = this.options.classify(error)
        entry.retryAt = Date.now() + Math.min(MAX_RETRY_MS, 250 * 2 ** entry.retries)
        entry.retries = Math.min(entry.retries + 1, 10)
      }
    } finally {
      clearTimeout(settled)
      entry.abort = null
      this.flushSoon()
      if (this.watched.has(entry.session)) this.schedule()
    }
  }

  private flushSoon(): void {
    this.flushTimer ??= setTimeout(() => {
      this.flushTimer = null
      for (const entry of this.watched.values()) {
        for (const [sink, sent] of entry.sinks) {
          entry.sinks.set(sink, entry.events.length)
          sink({ session: entry.session, events: entry.events.slice(sent), status: entry.status })
        }
      }
    }, this.options.batchMs ?? 60)
  }
}
