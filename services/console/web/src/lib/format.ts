// Numbers, times and names as people read them.
import type { Timestamp } from '@bufbuild/protobuf/wkt'

import type { Cost, Session } from '../gen/dressage/v1/session_pb'
import { Phase, SessionState } from '../gen/dressage/v1/session_pb'

export function seconds(time: Timestamp | undefined): number | null {
  return time === undefined ? null : Number(time.seconds) + time.nanos / 1e9
}

export function compact(value: number | bigint): string {
  const number = Number(value)
  if (Math.abs(number) < 1000) return String(Math.round(number * 100) / 100)
  return new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 }).format(number)
}

/** A number with about `digits` significant digits and no exponent where that reads well. */
export function short(value: number, digits = 3): string {
  if (!Number.isFinite(value)) return '–'
  const size = Math.abs(value)
  if (size !== 0 && (size < 1e-4 || size >= 1e7)) return value.toExponential(digits - 1)
  if (size >= 1000) return Math.round(value).toLocaleString('en')
  return String(Number(value.toPrecision(Math.max(digits, size >= 100 ? 4 : digits))))
}

export function score(value: number | undefined): string {
  return value === undefined ? '–' : value.toFixed(2)
}

export function duration(total: number): string {
  if (!Number.isFinite(total) || total < 0) return '–'
  if (total < 60) return `${Math.round(total)} s`
  if (total < 3600) return `${Math.floor(total / 60)} min ${Math.round(total % 60)} s`
  if (total < 86_400) return `${Math.floor(total / 3600)} h ${Math.floor((total % 3600) / 60)} min`
  return `${Math.floor(total / 86_400)} d ${Math.floor((total % 86_400) / 3600)} h`
}

export function ago(time: number, now: number): string {
  const passed = now - time
  if (passed < 5) return 'now'
  if (passed < 60) return `${Math.floor(passed)} s ago`
  if (passed < 3600) return `${Math.floor(passed / 60)} min ago`
  if (passed < 86_400) return `${Math.floor(passed / 3600)} h ago`
  return new Date(time * 1000).toLocaleDateString(undefined, { day: 'numeric', month: 'short', year: 'numeric' })
}

export function clock(time: number): string {
  return new Date(time * 1000).toLocaleTimeString(undefined, { hour12: false })
}

export function dollars(cost: Cost | undefined): string {
  if (cost === undefined || Number(cost.requests) === 0) return '–'
  return cost.dollars === undefined ? 'unknown price' : `$${cost.dollars.toFixed(cost.dollars < 1 ? 3 : 2)}`
}

export function bytes(size: number | bigint): string {
  const units = ['B', 'kB', 'MB', 'GB', 'TB']
  let value = Number(size)
  let unit = 0
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000
    unit += 1
  }
  return `${unit === 0 ? value : value.toFixed(1)} ${units[unit]}`
}

/** `sessions/a/iterations/3` → `3`. */
export function lastPart(name: string): string {
  return name.slice(name.lastIndexOf('/') + 1)
}

export function environmentId(name: string): string {
  return name.replace(/^environments\//, '')
}

/** The names of the API's enumerations are the words of the page. */
export const stateName = (state: SessionState) => (state === SessionState.UNSPECIFIED ? 'unknown' : (SessionState[state]?.toLowerCase() ?? 'unknown'))
export const isOver = (state: SessionState) => state >= SessionState.SUCCEEDED

export const phaseName = (phase: Phase) => (phase === Phase.UNSPECIFIED ? '–' : (Phase[phase]?.toLowerCase() ?? '–'))

/** A word for a shell: quoted unless it is plain. */
export function shellWord(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`
}

/** A short digest of a form: a changed one is another request, a repeated click the same. */
export function digest(text: string): string {
  let value = 0
  for (let index = 0; index < text.length; index += 1) value = (Math.imul(value, 31) + text.charCodeAt(index)) | 0
  return (value >>> 0).toString(36)
}

/** A name within a line: marks in it that change the direction of text do not reach what follows. */
export function isolated(name: string): string {
  return `\u2068${name.replaceAll('\u2069', '')}\u2069`
}

/** A score: judges' have two decimals, returns as many as read well. */
export function scoreText(value: number, method: string): string {
  return method === 'reward' ? value.toFixed(2) : short(value)
}

const INTERRUPTED: Partial<Record<SessionState, string>> = {
  [SessionState.CANCELLED]: 'was cancelled',
  [SessionState.FAILED]: 'failed',
  [SessionState.RUNNING]: 'has not ended',
}

/** Where the best policy is from, and whether its session ended by itself. */
export function originText(session: Session): string {
  const origin = session.policyOrigin
  if (origin === undefined) return ''
  const parts = [`iteration ${origin.iteration.split('/').pop()}`]
  if (origin.member !== '') parts.push(`${origin.member.split('/').pop()}${origin.interrupted ? ', checkpoint' : ''} at ${Number(origin.envStep).toLocaleString('en')} steps`)
  parts.push(origin.score === undefined ? 'not judged' : `score ${scoreText(origin.score, session.method)}`)
  const last = origin.comparison
  if (last !== undefined) parts.push(`the last checkpoint, at ${Number(last.lastEnvStep).toLocaleString('en')} steps, ${origin.score === undefined ? 'returned' : 'scored'} ${scoreText(last.lastValue, session.method)} on the same fresh episodes`)
  const state = INTERRUPTED[session.state]
  return parts.join(', ') + (state ? `; the session ${state}` : '')
}

/** Where a search scores its candidates, and where it confirms one of them; only the second score decides. */
const SCORED_ON: Record<string, [string, string]> = {
  program: ['search states', 'report states'],
  parameters: ['search seeds', 'report seeds'],
  code: ['search seeds', 'report seeds'],
}

/** The score of an iteration with what it is measured on, and whether it passes. */
export function scoredText({ score, confirmed, passed }: { score: number; confirmed: boolean; passed: boolean }, method: string): string {
  const bases = SCORED_ON[method]
  const [first, again] = bases ?? ['', 'fresh seeds']
  const basis = confirmed ? again : first
  const verdict = confirmed || bases === undefined ? `, ${passed ? 'passed' : 'not passed'}` : ''
  return `${scoreText(score, method)}${basis && ` on ${basis}`}${verdict}`
}

/** The number of a goal such as `a mean return of 475`, as text. */
export function goalNumber(goal: string): string {
  return short(Number(/-?\d+(\.\d+)?/.exec(goal)?.[0] ?? 0))
}

/** The place of a session that waits for others, such as `place 3 of 7`; empty: it does not wait for a place. */
export function placeOf({ queue }: Session): string {
  return queue === undefined ? '' : `place ${queue.place} of ${queue.length}`
}
