// Settings for which the form has no field, as lines `name=value` with the names of the API.
import { fromJson, type JsonObject, type JsonValue } from '@bufbuild/protobuf'

import type { SessionSpec } from '../../gen/dressage/v1/session_pb'
import { SessionSpecSchema } from '../../gen/dressage/v1/session_pb'
import { flat, put } from '../../lib/arguments'

export const FURTHER_EXAMPLES = ['environment_options.max_episode_steps=500', 'reward.evaluations=4', 'code.episodes=20']

function read(text: string): JsonValue {
  try {
    return JSON.parse(text) as JsonValue
  } catch {
    return text
  }
}

export function decode(json: JsonObject, place: string): SessionSpec {
  try {
    return fromJson(SessionSpecSchema, json)
  } catch (error) {
    throw new Error(`${place}: ${error instanceof Error ? error.message.replace(/^cannot decode \S+ \S+ from JSON: /, '') : String(error)}`)
  }
}

/** The JSON of a spec with these settings and no other one. Throws an Error that names the line. */
export function parseFurther(text: string): JsonObject {
  const all: JsonObject = {}
  text.split('\n').forEach((line, index) => {
    const shown = line.trim()
    if (shown === '') return
    const at = shown.indexOf('=')
    const place = `Line ${index + 1}, ${shown.slice(0, 60)}`
    if (at < 1) throw new Error(`${place}: write name=value, such as ${FURTHER_EXAMPLES[0]}`)
    const path = shown.slice(0, at).trim().split('.')
    const value = read(shown.slice(at + 1).trim())
    const alone: JsonObject = {}
    put(alone, path, value)
    decode(alone, place)
    put(all, path, value)
  })
  return all
}

/** The settings of the JSON of a spec as such lines. */
export function furtherLines(json: JsonObject): string {
  const line = ([path, value]: [string, JsonValue]) => {
    // A text is quoted where it would be read as something else.
    const plain = typeof value === 'string' && value !== '' && value === value.trim() && !value.includes('\n') && read(value) === value
    return `${path}=${plain ? value : JSON.stringify(value)}`
  }
  return flat(json).map(line).join('\n')
}
