// A recorded episode: an .npz file of arrays of 32 or 64 bits and a JSON entry that describes them.
import { unzipSync } from 'fflate'

import type { States } from './types'

const FORMAT = 'dressage.trajectory/1'
const FIELD = 'field/'
/** Bytes of a file, and of what it unpacks to, at most. */
export const MAX_BYTES = 64_000_000
const MAX_UNPACKED = 256_000_000

export type Table = { shape: number[]; values: Float32Array | Float64Array | Uint32Array | Uint8Array }

export type Episode = {
  environment: string
  seed: number
  steps: number
  /** Seconds of each state. */
  times: Float64Array
  /** Fields of the state by name, a row for each state. */
  fields: Map<string, Table>
  action: Table
  reward: Table
  qpos: Table
  qvel: Table
}

/** The arrays of an .npz file by name, and its JSON entry. @throws Error stating what is wrong. */
export function unpack<Schema>(bytes: Uint8Array): { schema: Schema; tables: Map<string, Table> } {
  let unpacked = 0
  const entries = unzipSync(bytes, {
    filter: (file) => {
      unpacked += file.originalSize
      if (unpacked > MAX_UNPACKED) throw new Error('the recording unpacks to more than 256 MB')
      return true
    },
  })
  const tables = new Map(Object.entries(entries).map(([name, data]) => [name.replace(/\.npy$/, ''), readArray(data)]))
  const description = tables.get('schema')
  if (!(description?.values instanceof Uint8Array)) throw new Error('the recording has no description')
  return { schema: JSON.parse(new TextDecoder().decode(description.values)) as Schema, tables }
}

/** Read a file that `Trajectory.save` wrote. @throws Error stating what is wrong. */
export function readEpisode(bytes: Uint8Array): Episode {
  const { schema, tables } = unpack<{ format: string; environment: string; seed: number; num_steps: number; fields: string[] }>(bytes)
  if (schema.format !== FORMAT) throw new Error(`the recording has the format ${schema.format}, not ${FORMAT}`)
  const table = (name: string): Table => {
    const found = tables.get(name)
    if (found === undefined) throw new Error(`the recording has no array ${name}`)
    return found
  }
  const fields = new Map(schema.fields.map((name) => [name, table(FIELD + name)]))
  const rows = schema.num_steps + 1
  const time = fields.get('time')
  const times = time === undefined ? Float64Array.from({ length: rows }, (_, row) => row) : Float64Array.from(time.values)
  return { environment: schema.environment, seed: schema.seed, steps: schema.num_steps, times, fields, action: table('action'), reward: table('reward'), qpos: table('qpos'), qvel: table('qvel') }
}

/** Read one array in NumPy's format, versions 1 to 3. */
export function readArray(data: Uint8Array): Table {
  if (String.fromCharCode(...data.subarray(1, 6)) !== 'NUMPY') throw new Error('an entry of the recording is no array')
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength)
  const wide = data[6]! > 1
  const length = wide ? view.getUint32(8, true) : view.getUint16(8, true)
  const start = (wide ? 12 : 10) + length
  const header = new TextDecoder().decode(data.subarray(wide ? 12 : 10, start))
  const kind = /'descr':\s*'([^']+)'/.exec(header)?.[1] ?? ''
  const shape = (/'shape':\s*\(([^)]*)\)/.exec(header)?.[1] ?? '').split(',').map((part) => part.trim()).filter((part) => part !== '').map(Number)
  if (/'fortran_order':\s*True/.test(header)) throw new Error('an array of the recording has columns first')
  const size = shape.reduce((product, length) => product * length, 1)
  // A copy: views of 4 and 8 bytes must be aligned.
  const body = (bytes: number) => {
    if (data.byteLength < start + size * bytes) throw new Error('an array of the recording is cut off')
    return data.slice(start, start + size * bytes).buffer as ArrayBuffer
  }
  if (kind === '<f4') return { shape, values: new Float32Array(body(4)) }
  if (kind === '<f8') return { shape, values: new Float64Array(body(8)) }
  if (kind === '<u4') return { shape, values: new Uint32Array(body(4)) }
  if (kind === '|u1') return { shape, values: new Uint8Array(body(1)) }
  throw new Error(`an array of the recording has the type ${kind}`)
}

/** The states before the first one that is not finite. A state's control is the action that follows it. */
export function statesOf(episode: Episode, controls: number): States {
  const rows = episode.steps + 1
  const nq = episode.qpos.shape[1] ?? 0
  const nv = episode.qvel.shape[1] ?? 0
  const bad = episode.qpos.values.findIndex((value) => !Number.isFinite(value))
  const finite = bad < 0 ? rows : Math.floor(bad / nq)
  const ctrl = new Float64Array(finite * controls)
  if (episode.action.shape[1] === controls && episode.steps > 0) {
    for (let row = 0; row < finite; row += 1) {
      const step = Math.min(row, episode.steps - 1)
      ctrl.set(episode.action.values.subarray(step * controls, (step + 1) * controls), row * controls)
    }
  }
  return { rows: finite, qpos: Float64Array.from(episode.qpos.values.subarray(0, finite * nq)), qvel: Float64Array.from(episode.qvel.values.subarray(0, finite * nv)), ctrl }
}

export type Column = { name: string; values: (episode: Episode) => { x: number[]; y: number[] } }

/** All recorded numbers by name: fields, actions, reward, positions and velocities. */
export function columnsOf(episode: Episode): Column[] {
  const columns: Column[] = []
  const add = (name: string, pick: (episode: Episode) => Table | undefined): void => {
    const own = pick(episode)
    const numbers = own === undefined ? 1 : width(own)
    for (let index = 0; index < numbers; index += 1) {
      columns.push({
        name: numbers === 1 ? name : `${name}[${index}]`,
        values: (of) => {
          const table = pick(of)
          // An episode of another environment may have a field of this name with another meaning of its numbers.
          if (table === undefined || width(table) !== numbers) return { x: [], y: [] }
          const rows = table.shape[0] ?? 0
          return { x: Array.from(of.times.subarray(0, rows)), y: Array.from({ length: rows }, (_, row) => table.values[row * numbers + index] ?? Number.NaN) }
        },
      })
    }
  }
  for (const name of [...episode.fields.keys()].sort((a, b) => Number(width(episode.fields.get(a)!) > 1) - Number(width(episode.fields.get(b)!) > 1))) {
    if (name !== 'time') add(name, (of) => of.fields.get(name))
  }
  add('reward', (of) => of.reward)
  add('action', (of) => of.action)
  add('qpos', (of) => of.qpos)
  add('qvel', (of) => of.qvel)
  return columns
}

function width(table: Table): number {
  return table.shape.slice(1).reduce((product, length) => product * length, 1)
}
