// Poses by WebAssembly are those of the MuJoCo that renders the videos, in every environment.
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, relative, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'

import loadMujoco, { type MainModule } from '@mujoco/mujoco'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { columnsOf, readEpisode, statesOf } from '../../src/scene/episode'
import { Engine, quaternion } from '../../src/scene/engine'
import { readPoses } from '../../src/scene/recorded'
import { Clock, placeAt, stepFrom } from '../../src/scene/playback'
import type { States, XmlModel } from '../../src/scene/types'
import { withoutEval } from '../../without-eval'

type Frame = { qpos: number[]; qvel: number[]; ctrl: number[]; geom_xpos: number[]; geom_xmat: number[]; contacts: number; normal_force: number }
type Expected = Record<string, { file: string; frames: Frame[] }>

const ROOT = resolve(import.meta.dirname, '../../../../..')
const PACKAGE = resolve(import.meta.dirname, '../../node_modules/@mujoco/mujoco')
const EXPECTED = JSON.parse(readFileSync(join(import.meta.dirname, 'poses.json'), 'utf8')) as Expected
const TOLERANCE = 1e-5

/** The shipped code: MuJoCo's JavaScript after the transform of the build. */
const folder = mkdtempSync(join(tmpdir(), 'dressage-wasm-'))
let mujoco: MainModule

beforeAll(async () => {
  writeFileSync(join(folder, 'mujoco.mjs'), withoutEval(readFileSync(join(PACKAGE, 'mujoco.js'), 'utf8')))
  symlinkSync(join(PACKAGE, 'mujoco.wasm'), join(folder, 'mujoco.wasm'))
  const { default: load } = (await import(/* @vite-ignore */ pathToFileURL(join(folder, 'mujoco.mjs')).href)) as { default: typeof loadMujoco }
  mujoco = await load({ print: () => undefined, printErr: () => undefined })
}, 60_000)

afterAll(() => rmSync(folder, { recursive: true, force: true }))

function files(path: string): string[] {
  return statSync(path).isDirectory() ? readdirSync(path).flatMap((name) => files(join(path, name))) : [path]
}

/** A model with all files beside it, as the API delivers it. */
function modelOf(file: string): XmlModel {
  const path = join(ROOT, file)
  const custom = !file.startsWith('libs/')
  const others = custom ? files(dirname(path)).filter((name) => name !== path) : []
  return { path: relative(dirname(path), path), xml: readFileSync(path, 'utf8'), files: others.map((name) => ({ path: relative(dirname(path), name), data: readFileSync(name) })) }
}

function statesFrom(frames: Frame[]): States {
  const joined = (key: 'qpos' | 'qvel' | 'ctrl') => Float64Array.from(frames.flatMap((frame) => frame[key]))
  return { rows: frames.length, qpos: joined('qpos'), qvel: joined('qvel'), ctrl: joined('ctrl') }
}

function farthest(a: ArrayLike<number>, b: ArrayLike<number>): number {
  expect(a.length).toBe(b.length)
  return Math.max(...Array.from(a, (value, index) => Math.abs(value - b[index]!)))
}

describe('poses by WebAssembly', () => {
  it('covers every environment of MuJoCo', () => {
    const folders = join(ROOT, 'libs/dressage/envs/catalogue')
    const models = readdirSync(folders, { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith('.xml'))
      .map((name) => name.split('/').pop())
    expect(Object.values(EXPECTED).map((entry) => entry.file.split('/').pop()).sort()).toEqual([...models, 'cart.xml'].sort())
  })

  it.each(Object.keys(EXPECTED))('are those of the renderer in %s', (name) => {
    const { file, frames } = EXPECTED[name]!
    const engine = new Engine(mujoco, modelOf(file))
    const states = statesFrom(frames)
    for (const [row, frame] of frames.entries()) {
      const { position, matrix } = engine.forward(states, row)
      expect(farthest(position, frame.geom_xpos)).toBeLessThan(TOLERANCE)
      expect(farthest(matrix, frame.geom_xmat)).toBeLessThan(TOLERANCE)
    }
    const poses = engine.poses(states)
    const shapes = engine.describe().shapes.length
    expect(poses.position.length).toBe(frames.length * shapes * 3)
    for (const [row, frame] of frames.entries()) {
      expect(poses.contactStart[row + 1]! - poses.contactStart[row]!).toBe(frame.contacts)
      if (frames.length * shapes === 0) continue
      const first = poses.position.subarray(row * shapes * 3, row * shapes * 3 + 3)
      expect(farthest(first, frame.geom_xpos.slice(0, 3))).toBeLessThan(TOLERANCE)
    }
    engine.close()
  })

  it.each(['Hopper-v5', 'Walker2d-v5', 'Ant-v5', 'HumanoidStandup-v5'])('have the contact forces of the renderer in %s', (name) => {
    const { file, frames } = EXPECTED[name]!
    const engine = new Engine(mujoco, modelOf(file))
    const poses = engine.poses(statesFrom(frames))
    for (const [row, frame] of frames.entries()) {
      // All contacts of these frames are with the level floor, whose normal is z.
      let total = 0
      for (let at = poses.contactStart[row]!; at < poses.contactStart[row + 1]!; at += 1) total += poses.contacts[6 * at + 5]!
      if (name !== 'HumanoidStandup-v5') expect(Math.abs(total - frame.normal_force)).toBeLessThan(1e-3 * (1 + frame.normal_force))
      else expect(total).toBeGreaterThan(0)
    }
    engine.close()
  })

  it('describe meshes, height fields and materials of a custom model', () => {
    const engine = new Engine(mujoco, modelOf(EXPECTED['mjcf:cart']!.file))
    const { shapes, meshes, travels, flat, weight } = engine.describe()
    expect(shapes.map((shape) => shape.kind)).toEqual(['plane', 'mesh', 'box', 'mesh', 'ellipsoid', 'capsule', 'cylinder', 'sphere', 'sphere'])
    expect(shapes[2]!.color.map((value) => Math.round(value * 10) / 10)).toEqual([0.2, 0.4, 0.8, 1])
    expect(meshes.map((mesh) => mesh.faces.length / 3)).toEqual([12, 6])
    expect([travels, flat]).toEqual([true, false])
    expect(weight).toBeGreaterThan(1)
    engine.close()
  })

  it("say in MuJoCo's words why a model cannot be loaded", () => {
    expect(() => new Engine(mujoco, { path: 'a.xml', xml: '<mujoco><novelty/></mujoco>', files: [] })).toThrow(/unrecognized element/)
    expect(() => new Engine(mujoco, { path: 'a.xml', xml: '<mujoco><asset><mesh file="absent.stl"/></asset></mujoco>', files: [] })).toThrow(/absent\.stl/)
  })

  it('refuse states of another model', () => {
    const engine = new Engine(mujoco, modelOf(EXPECTED['Hopper-v5']!.file))
    expect(() => engine.poses(statesFrom(EXPECTED['Ant-v5']!.frames))).toThrow(/not of this model/)
    engine.close()
  })
})

describe('poses that the server stored', () => {
  const recorded = (name: string) => readPoses(readFileSync(join(import.meta.dirname, `poses_${name}.npz`)))
  const hopper = readEpisode(readFileSync(join(ROOT, 'libs/dressage/envs/catalogue/hopper/trajectories/untrained_0.npz')))
  const cart = () => {
    const states = statesFrom(EXPECTED['mjcf:cart']!.frames)
    // The last state has no action of its own: the one before it counts.
    const { nu } = new Engine(mujoco, modelOf(EXPECTED['mjcf:cart']!.file)).describe()
    states.ctrl.copyWithin((states.rows - 1) * nu, (states.rows - 2) * nu, (states.rows - 1) * nu)
    return states
  }

  it.each([
    ['Hopper-v5', 'hopper', () => statesOf(hopper, 3)],
    ['mjcf:cart', 'cart', cart],
  ] as const)('are those of WebAssembly in %s, and so are the shapes', (environment, name, statesIn) => {
    const engine = new Engine(mujoco, modelOf(EXPECTED[environment]!.file))
    const poses = engine.poses(statesIn())
    const model = engine.describe()
    const stored = recorded(name)
    expect(stored.poses.rows).toBe(poses.rows)
    for (const part of ['position', 'centre'] as const) expect(farthest(stored.poses[part], poses[part])).toBeLessThan(TOLERANCE)
    // A rotation has two quaternions.
    const apart = Array.from({ length: poses.rotation.length / 4 }, (_, at) => 1 - Math.abs([0, 1, 2, 3].reduce((sum, part) => sum + stored.poses.rotation[4 * at + part]! * poses.rotation[4 * at + part]!, 0)))
    expect(Math.max(...apart)).toBeLessThan(1e-5)
    expect([...stored.poses.contactStart]).toEqual([...poses.contactStart])
    const scale = Math.max(1, ...poses.contacts.map(Math.abs))
    expect(farthest(stored.poses.contacts, poses.contacts) / scale).toBeLessThan(1e-3)
    expect([stored.model.travels, stored.model.flat]).toEqual([model.travels, model.flat])
    expect(stored.model.weight).toBeCloseTo(model.weight, 5)
    expect(stored.model.shapes.map(({ kind, mesh }) => [kind, mesh])).toEqual(model.shapes.map(({ kind, mesh }) => [kind, mesh]))
    for (const [index, shape] of model.shapes.entries()) {
      const other = stored.model.shapes[index]!
      expect(farthest([...other.size, ...other.color, other.radius], [...shape.size, ...shape.color, shape.radius])).toBeLessThan(1e-2)
    }
    for (const [index, mesh] of model.meshes.entries()) {
      expect(farthest(stored.model.meshes[index]!.vertices, mesh.vertices)).toBeLessThan(TOLERANCE)
      expect(stored.model.meshes[index]!.faces.length).toBe(mesh.faces.length)
    }
    engine.close()
  })
})

describe('the transform of the build', () => {
  it('leaves no code from strings, and refuses another source', () => {
    const code = readFileSync(join(PACKAGE, 'mujoco.js'), 'utf8')
    expect(withoutEval(code)).not.toMatch(/new Function\(/)
    expect(() => withoutEval(code.replace('expectedArgCount', 'other').replace('new Function(...args', 'new Function(...some'))).toThrow(/has changed/)
    expect(() => withoutEval(`${code}\nnew Function("x")`)).toThrow(/further functions/)
  })
})

describe('a recorded episode', () => {
  const path = join(ROOT, 'libs/dressage/envs/catalogue/hopper/trajectories/untrained_0.npz')
  const episode = readEpisode(readFileSync(path))

  it('is read as the services wrote it', () => {
    expect([episode.environment, episode.qpos.shape, episode.action.shape]).toEqual(['Hopper-v5', [episode.steps + 1, 6], [episode.steps, 3]])
    expect(episode.times[1]).toBeCloseTo(0.008, 6)
    const states = statesOf(episode, 3)
    expect(states.rows).toBe(episode.steps + 1)
    // The control of a state is the action that follows it; the last state repeats the last one.
    expect([...states.ctrl.subarray(0, 3)]).toEqual([...episode.action.values.subarray(0, 3)])
    expect([...states.ctrl.subarray(-3)]).toEqual([...episode.action.values.subarray(-3)])
  })

  it('offers every recorded number as a curve', () => {
    const columns = columnsOf(episode)
    const names = columns.map((column) => column.name)
    expect(names).toEqual(expect.arrayContaining(['z_position', 'observation[10]', 'action[2]', 'reward', 'qpos[5]', 'qvel[0]']))
    expect(new Set(names).size).toBe(names.length)
    const { x, y } = columns[names.indexOf('qpos[1]')]!.values(episode)
    expect([x.length, y[3]]).toEqual([episode.steps + 1, episode.qpos.values[3 * 6 + 1]])
  })

  it('draws nothing of another episode whose field has another size', () => {
    const columns = columnsOf(episode)
    const action = { shape: [episode.steps, 6], values: new Float32Array(6 * episode.steps) }
    const other = { ...episode, action, fields: new Map() }
    expect(columns.find(({ name }) => name === 'action[2]')!.values(other)).toEqual({ x: [], y: [] })
    expect(columns.find(({ name }) => name === 'z_position')!.values(other)).toEqual({ x: [], y: [] })
  })

  it('ends before the first state that is not finite', () => {
    const values = Float64Array.from(episode.qpos.values)
    values[6 * 4 + 2] = Number.NaN
    expect(statesOf({ ...episode, qpos: { ...episode.qpos, values } }, 3).rows).toBe(4)
  })

  it('is refused with a reason if it is something else', () => {
    expect(() => readEpisode(new TextEncoder().encode('<html>'))).toThrow()
    expect(() => readEpisode(readFileSync(path).subarray(0, 900))).toThrow()
  })
})

describe('rotations', () => {
  it('become quaternions from every branch', () => {
    for (const q of [[0, 0, 0, 1], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0.5, -0.5, 0.5, 0.5], [0.7, 0.1, -0.1, 0.7]]) {
      const length = Math.hypot(...q)
      const [x, y, z, w] = q.map((value) => value / length) as [number, number, number, number]
      const matrix = [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w), 2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w), 2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)]
      const dot = quaternion(matrix).reduce((sum, value, index) => sum + value * [x, y, z, w][index]!, 0)
      expect(Math.abs(dot)).toBeCloseTo(1, 9)
    }
  })
})

describe('the shared clock', () => {
  const times = Float64Array.from([0, 0.1, 0.2, 0.4])

  it('finds the recorded states around a time', () => {
    expect(placeAt(times, 4, 0.1)).toEqual({ row: 1, share: 0 })
    expect(placeAt(times, 4, 0.3).share).toBeCloseTo(0.5)
    expect(placeAt(times, 4, 9)).toEqual({ row: 3, share: 0 })
    expect(placeAt(times, 2, 9)).toEqual({ row: 1, share: 0 })
    expect(placeAt(Float64Array.from([0]), 1, 0)).toEqual({ row: 0, share: 0 })
  })

  it('steps from state to state', () => {
    expect([stepFrom(times, 0.1, 1), stepFrom(times, 0.15, 1), stepFrom(times, 0.15, -1), stepFrom(times, 0.1, -1), stepFrom(times, 0, -1), stepFrom(times, 0.4, 1)]).toEqual([0.2, 0.2, 0.1, 0, 0, 0.4])
  })

  it('plays slower, starts again at the end, and tells who listens', () => {
    const clock = new Clock(1)
    const seen: number[] = []
    const stop = clock.subscribe((time) => seen.push(time))
    clock.advance(1)
    clock.playing = true
    clock.speed = 0.25
    clock.advance(1)
    clock.seek(5)
    clock.advance(0.1)
    stop()
    clock.seek(0.5)
    expect(seen).toEqual([0, 0.25, 1, 0])
  })
})
