// MuJoCo in a worker: only this script's policy allows WebAssembly, and no model can hold up the page.
//
// The server knows this file by its name (dressage_console/assets.py).
import loadMujoco, { type MainModule } from '@mujoco/mujoco'
import wasm from '@mujoco/mujoco/mujoco.wasm?url'

import { Engine } from './engine'
import type { Poses, SceneModel, States, XmlModel } from './types'

export type Ask = { id: number } & ({ kind: 'model'; model: XmlModel } | { kind: 'poses'; states: States })
export type Answer = { id: number } & ({ kind: 'model'; scene: SceneModel } | { kind: 'poses'; poses: Poses } | { kind: 'error'; message: string })

let module: Promise<MainModule> | null = null
let engine: Engine | null = null

async function answer(ask: Ask): Promise<[Answer, Transferable[]]> {
  if (ask.kind === 'model') {
    module ??= loadMujoco({ locateFile: () => wasm, print: () => undefined, printErr: () => undefined })
    const loaded = await module
    engine?.close()
    engine = null
    engine = new Engine(loaded, ask.model)
    const scene = engine.describe()
    return [{ id: ask.id, kind: 'model', scene }, []]
  }
  if (engine === null) throw new Error('no model is loaded')
  const poses = engine.poses(ask.states)
  return [{ id: ask.id, kind: 'poses', poses }, [poses.position.buffer, poses.rotation.buffer, poses.centre.buffer, poses.contactStart.buffer, poses.contacts.buffer] as Transferable[]]
}

const scope = globalThis as unknown as { onmessage: (event: MessageEvent<Ask>) => void; postMessage: (message: Answer, transfer?: Transferable[]) => void }

scope.onmessage = (event) => {
  answer(event.data).then(
    ([message, transfer]) => scope.postMessage(message, transfer),
    (error: unknown) => scope.postMessage({ id: event.data.id, kind: 'error', message: messageOf(error) }),
  )
}

/** The first line of MuJoCo's message. */
function messageOf(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error)
  return text.replace(/^MuJoCo Error: (Loading error: )?/, '').trim().split('\n').slice(0, 2).join('; ').slice(0, 300)
}
