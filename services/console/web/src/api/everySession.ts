// All sessions of the server, up to a limit.
import type { Session } from '../gen/dressage/v1/session_pb'
import { sessions } from './clients'

/** Small enough that no page keeps the main thread busy for long. */
const PAGE_SIZE = 200
const MOST = 5_000

export async function everySession(showDeleted: boolean, signal?: AbortSignal): Promise<Session[]> {
  const all: Session[] = []
  let pageToken = ''
  do {
    const page = await sessions.listSessions({ pageSize: PAGE_SIZE, pageToken, showDeleted }, signal === undefined ? {} : { signal })
    all.push(...page.sessions)
    pageToken = page.nextPageToken
  } while (pageToken !== '' && all.length < MOST)
  return all
}
