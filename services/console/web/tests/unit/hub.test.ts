import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'

import type { Batch } from '../../src/live/hub'
import { WatchHub } from '../../src/live/hub'

/** A server of streams: each session has events 1, 2, …; a stream starts after its token and stays open. */
class Server {
  readonly opened: [string, string][] = []
  private readonly events = new Map<string, number>()
  private waiting: (() => void)[] = []
  failing = 0
  ended = new Set<string>()

  emit(session: string, count: number): void {
    this.events.set(session, count)
    for (const wake of this.waiting.splice(0)) wake()
  }

  async *open(session: string, token: string, signal: AbortSignal) {
    this.opened.push([session, token])
    if (this.failing > 0) {
      this.failing -= 1
      throw new Error('refused')
    }
    let next = Number(token || 0)
    for (;;) {
      while (next < (this.events.get(session) ?? 0)) {
        next += 1
        yield { event: new Uint8Array([next]), resumeToken: String(next) }
      }
      if (this.ended.has(session)) return
      await new Promise<void>((resolve, reject) => {
        this.waiting.push(resolve)
        signal.addEventListener('abort', () => reject(new Error('aborted')), { once: true })
      })
    }
  }
}

function collect() {
  const seen: number[] = []
  let status = ''
  const sink = (batch: Batch) => {
    seen.push(...batch.events.map((event) => event[0]!))
    status = batch.status
  }
  return { seen, sink, status: () => status }
}

describe('the hub', () => {
  let server: Server
  let hub: WatchHub
  beforeEach(() => {
    vi.useFakeTimers()
    server = new Server()
    hub = new WatchHub({ open: (...given) => server.open(...given), classify: () => 'offline', maxStreams: 2, sliceMs: 1000, keepMs: 500, batchMs: 10 })
  })
  afterEach(() => vi.useRealTimers())

  it('opens one stream for all tabs and gives a late tab everything', async () => {
    const [first, second] = [collect(), collect()]
    hub.subscribe('a', first.sink)
    server.emit('a', 3)
    await vi.advanceTimersByTimeAsync(50)
    hub.subscribe('a', second.sink)
    server.emit('a', 5)
    await vi.advanceTimersByTimeAsync(50)
    expect(first.seen).toEqual([1, 2, 3, 4, 5])
    expect(second.seen).toEqual([1, 2, 3, 4, 5])
    expect(server.opened).toEqual([['a', '']])
  })

  it('resumes by its token after failures and loses nothing', async () => {
    server.failing = 3
    const tab = collect()
    hub.subscribe('a', tab.sink)
    server.emit('a', 2)
    await vi.advanceTimersByTimeAsync(100)
    expect(tab.status()).toBe('offline')
    await vi.advanceTimersByTimeAsync(5000)
    expect(tab.seen).toEqual([1, 2])
    expect(tab.status()).toBe('live')
  })

  it('counts a stream without events as open once it has not failed for a while', async () => {
    server.failing = 2
    const tab = collect()
    hub.subscribe('a', tab.sink)
    await vi.advanceTimersByTimeAsync(300)
    expect(tab.status()).toBe('offline')
    await vi.advanceTimersByTimeAsync(3000)
    expect(tab.status()).toBe('live')
    expect(tab.seen).toEqual([])
  })

  it('lets more sessions than streams take turns, without a repeated event', async () => {
    const tabs = ['a', 'b', 'c', 'd', 'e'].map((session) => {
      const tab = collect()
      hub.subscribe(session, tab.sink)
      server.emit(session, 2)
      return tab
    })
    for (let round = 0; round < 80; round += 1) {
      await vi.advanceTimersByTimeAsync(100)
      expect(hub.openStreams).toBeLessThanOrEqual(2)
      if (round === 40) for (const session of ['a', 'b', 'c', 'd', 'e']) server.emit(session, 4)
    }
    for (const tab of tabs) expect(tab.seen).toEqual([1, 2, 3, 4])
  })

  it('closes the stream some time after its last tab left', async () => {
    const stop = hub.subscribe('a', collect().sink)
    server.emit('a', 1)
    await vi.advanceTimersByTimeAsync(50)
    expect(hub.openStreams).toBe(1)
    stop()
    await vi.advanceTimersByTimeAsync(600)
    expect(hub.openStreams).toBe(0)
  })

  it('reports the end, and watches again after a resume', async () => {
    const tab = collect()
    server.ended.add('a')
    server.emit('a', 1)
    hub.subscribe('a', tab.sink)
    await vi.advanceTimersByTimeAsync(50)
    expect(tab.status()).toBe('ended')
    server.ended.clear()
    server.emit('a', 2)
    hub.revive('a')
    await vi.advanceTimersByTimeAsync(50)
    expect(tab.seen).toEqual([1, 2])
    expect(server.opened.at(-1)).toEqual(['a', '1'])
  })
})
