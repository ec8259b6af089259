// Loads what the 3D view shows: the model once, then recorded states and their poses as they are chosen.
import { useEffect, useMemo, useRef, useState } from 'react'

import { artifactUrl, environments, errorText } from '../../api/clients'
import { Mujoco } from '../../scene/client'
import { type Episode, MAX_BYTES, readEpisode, statesOf } from '../../scene/episode'
import { hasWebGL } from '../../scene/stage'
import type { Poses, SceneModel } from '../../scene/types'

/** A rollout with its poses. `cut` is whether states that are not finite were left out. */
export type Take = { key: string; episode: Episode; poses: Poses; cut: boolean }

export type SceneState = { model: SceneModel | null; takes: Take[]; loading: boolean; why: string }

const MAX_TAKES = 6
const READ_MS = 60_000

async function readRecording(key: string): Promise<Episode> {
  const answer = await fetch(artifactUrl(key), { signal: AbortSignal.timeout(READ_MS) })
  if (!answer.ok) throw new Error(`the recording cannot be read: status ${answer.status}`)
  if (Number(answer.headers.get('content-length') ?? 0) > MAX_BYTES) throw new Error('the recording is larger than 64 MB')
  return readEpisode(new Uint8Array(await answer.arrayBuffer()))
}

class Loader {
  private mujoco: Mujoco | null = null
  private model: Promise<SceneModel> | null = null
  private readonly takes = new Map<string, Promise<Take>>()

  constructor(private readonly environment: string) {}

  scene(): Promise<SceneModel> {
    this.model ??= this.load()
    return this.model
  }

  private async load(): Promise<SceneModel> {
    if (!hasWebGL()) throw new Error('this browser has no WebGL')
    const mujoco = new Mujoco()
    this.mujoco = mujoco
    let source
    try {
      source = await environments.getEnvironmentModel({ name: this.environment })
    } catch (error) {
      throw new Error(errorText(error))
    }
    return mujoco.load({ path: source.path, xml: source.xml, files: source.files.map(({ path, data }) => ({ path, data })) })
  }

  take(key: string): Promise<Take> {
    const known = this.takes.get(key)
    if (known !== undefined) return known
    const made = (async () => {
      const [model, episode] = await Promise.all([this.scene(), readRecording(key)])
      const states = statesOf(episode, model.nu)
      if (states.rows === 0) throw new Error('the recording has no finite state')
      const poses = await this.mujoco!.poses(states)
      return { key, episode, poses, cut: states.rows <= episode.steps }
    })()
    this.takes.set(key, made)
    made.catch(() => this.takes.delete(key))
    for (const oldest of this.takes.keys()) {
      if (this.takes.size <= MAX_TAKES) break
      this.takes.delete(oldest)
    }
    return made
  }

  close(): void {
    this.mujoco?.close()
  }
}

/** @param keys artifact keys of the rollouts to show, the leading one first. */
export function useScene(environment: string, keys: string[]): SceneState {
  const loader = useRef<Loader | null>(null)
  const [state, setState] = useState<SceneState>({ model: null, takes: [], loading: true, why: '' })
  const wanted = useMemo(() => keys, [keys.join('\n')])
  useEffect(() => {
    loader.current = new Loader(environment)
    return () => loader.current?.close()
  }, [environment])
  useEffect(() => {
    let current = true
    const from = loader.current!
    setState((old) => ({ ...old, loading: true }))
    Promise.all([from.scene(), ...wanted.map((key) => from.take(key))] as const).then(
      ([model, ...takes]) => current && setState({ model, takes, loading: false, why: '' }),
      (error: unknown) => current && setState({ model: null, takes: [], loading: false, why: error instanceof Error ? error.message : String(error) }),
    )
    return () => {
      current = false
    }
  }, [environment, wanted])
  return state
}
