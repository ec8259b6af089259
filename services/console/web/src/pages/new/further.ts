// Settings for which the form has no field, as lines `name=value` with the names of the API.
import { fromJson, type JsonObject, type JsonValue, toJson } from '@bufbuild/protobuf'

import type { SessionSpec } from '../../gen/dressage/v1/session_pb'
import { SessionSpecSchema } from '../../gen/dressage/v1/session_pb'

export const FURTHER_EXAMPLES = ['pool=gpu', 'seed=7', 'budget.tokens=200000', 'environment_options.max_episode_steps=500', 'reward.early_stop=false', 'code.episodes=20']

const isObject = (value: JsonValue | undefined): value is JsonObject => typeof value === 'object' && value !== null && !Array.isArray(value)

function read(text: string): JsonValue {
  try {
    return JSON.parse(text) as JsonValue
  } catch {
    return text
  }
}

function put(target: JsonObject, path: string[], value: JsonValue): void {
  const [name = '', ...rest] = path
  if (rest.length === 0) {
    target[name] = value
    return
  }
  const inner = Object.hasOwn(target, name) ? target[name] : undefined
  const next = isObject(inner) ? inner : {}
  target[name] = next
  put(next, rest, value)
}

function decode(json: JsonObject, place: string): SessionSpec {
  try {
    return fromJson(SessionSpecSchema, json)
  } catch (error) {
    throw new Error(`${place}: ${error instanceof Error ? error.message.replace(/^cannot decode \S+ \S+ from JSON: /, '') : String(error)}`)
  }
}

/** The spec with these settings and no other one. Throws an Error that names the line. */
export function parseFurther(text: string): SessionSpec {
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
  return decode(all, 'Further settings')
}

/** The settings of a spec as such lines. */
export function furtherLines(spec: SessionSpec): string {
  const flat = (path: string, value: JsonValue): string[] => {
    if (isObject(value)) return Object.entries(value).flatMap(([name, inner]) => flat(path === '' ? name : `${path}.${name}`, inner))
    // A text is quoted where it would be read as something else.
    const plain = typeof value === 'string' && value !== '' && value === value.trim() && !value.includes('\n') && read(value) === value
    return [`${path}=${plain ? value : JSON.stringify(value)}`]
  }
  return flat('', toJson(SessionSpecSchema, spec, { useProtoFieldName: true })).join('\n')
}
