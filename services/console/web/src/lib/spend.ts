// What model calls have cost, by model or owner, from the sessions' totals.
import type { Session } from '../gen/dressage/v1/session_pb'
import { seconds } from './format'

export type Spend = { key: string; sessions: number; requests: number; tokens: number; dollars: number; unknown: number }

/**
 * Costs of the sessions that started since a time, by a key, the dearest first. A session with several models counts as the one
 * of its spec: the API has no price by model. `unknown` are sessions with calls without a known price.
 *
 * @param since seconds since 1970.
 */
export function spendBy(sessions: readonly Session[], key: (session: Session) => string, since: number): Spend[] {
  const all = new Map<string, Spend>()
  for (const session of sessions) {
    const { cost } = session
    if ((seconds(session.startTime ?? session.createTime) ?? 0) < since || cost === undefined || cost.requests === 0n) continue
    const name = key(session)
    const entry = all.get(name) ?? { key: name, sessions: 0, requests: 0, tokens: 0, dollars: 0, unknown: 0 }
    entry.sessions += 1
    entry.requests += Number(cost.requests)
    entry.tokens += Number(cost.inputTokens + cost.outputTokens)
    entry.dollars += cost.dollars ?? 0
    entry.unknown += cost.dollars === undefined ? 1 : 0
    all.set(name, entry)
  }
  return [...all.values()].sort((a, b) => b.dollars - a.dollars || b.tokens - a.tokens)
}
