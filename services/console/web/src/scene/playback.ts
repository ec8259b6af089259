// The time that the 3D view, its slider and its graphs share.

export type Listener = (time: number) => void

export class Clock {
  private readonly listeners = new Set<Listener>()
  time = 0
  playing = false
  speed = 1

  constructor(public length: number) {}

  subscribe(listener: Listener): () => void {
    this.listeners.add(listener)
    listener(this.time)
    return () => void this.listeners.delete(listener)
  }

  /** Move to a time, bounded by the episode. */
  seek(time: number): void {
    this.time = Math.min(Math.max(time, 0), this.length)
    for (const listener of this.listeners) listener(this.time)
  }

  /** Let seconds of the viewer pass; at the end the episode starts again. */
  advance(seconds: number): void {
    if (!this.playing) return
    const next = this.time + seconds * this.speed
    this.seek(next > this.length ? 0 : next)
  }
}

/** The recorded row at or before a time, and the share (0 to 1) of the way to the next one. */
export function placeAt(times: Float64Array, rows: number, time: number): { row: number; share: number } {
  let low = 0
  let high = Math.min(rows, times.length) - 1
  if (high <= 0 || time >= times[high]!) return { row: Math.max(high, 0), share: 0 }
  while (high - low > 1) {
    const middle = (low + high) >> 1
    if (times[middle]! <= time) low = middle
    else high = middle
  }
  const share = (time - times[low]!) / (times[low + 1]! - times[low]!)
  // A recorded state is shown as it is, in spite of rounding.
  if (share < 1e-6) return { row: low, share: 0 }
  return share > 1 - 1e-6 ? { row: low + 1, share: 0 } : { row: low, share }
}

/** The time of the recorded row before or after a time. */
export function stepFrom(times: Float64Array, time: number, direction: 1 | -1): number {
  const { row, share } = placeAt(times, times.length, time)
  const next = direction > 0 ? row + 1 : share > 0 ? row : row - 1
  return times[Math.min(Math.max(next, 0), times.length - 1)] ?? 0
}
