// Reads recordings from the server, within a time and a size.
import { artifactUrl } from '../api/clients'
import { MAX_BYTES } from './episode'

const READ_MS = 60_000

/** The bytes of an artifact. @param what what it is, for the error. @throws Error stating what is wrong. */
export async function readRecording(key: string, what: string): Promise<Uint8Array> {
  const answer = await fetch(artifactUrl(key), { signal: AbortSignal.timeout(READ_MS) })
  if (!answer.ok) throw new Error(`${what} cannot be read: status ${answer.status}`)
  if (Number(answer.headers.get('content-length') ?? 0) > MAX_BYTES) throw new Error(`${what} is larger than 64 MB`)
  return new Uint8Array(await answer.arrayBuffer())
}
