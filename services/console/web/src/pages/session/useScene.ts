// Loads what the 3D view shows: the model once, then recorded states and their poses as they are chosen.
import { ConnectError } from '@connectrpc/connect'
import { useEffect, useMemo, useRef, useState } from 'react'

import { artifacts, environments, errorText } from '../../api/clients'
import { Mujoco } from '../../scene/client'
import { type Episode, readEpisode, statesOf } from '../../scene/episode'
import { readRecording } from '../../scene/read'
import { readPoses } from '../../scene/recorded'
import { hasWebGL } from '../../scene/stage'
import type { Poses, SceneModel } from '../../scene/types'

/** A rollout with its poses. `cut` is whether states that are not finite were left out. */
export type Take = { key: string; episode: Episode; poses: Poses; cut: boolean }

/** `recorded`: why the server's poses are shown instead of those of WebAssembly; empty: they are not. */
export type SceneState = { model: SceneModel | null; takes: Take[]; loading: boolean; why: string; recorded: string }

const MAX_TAKES = 6
const COMPUTE_MS = 120_000

/** What computes poses, and why it is not WebAssembly (empty: it is). */
type Source = { model: SceneModel; why: string; poses: (key: string, episode: Episode) => Promise<Poses> }

class Loader {
  private mujoco: Mujoco | null = null
  private source: Promise<Source> | null = null
  private readonly takes = new Map<string, Promise<Take>>()

  constructor(private readonly environment: string) {}

  /** @param first the rollout whose stored poses describe the shapes, if WebAssembly cannot. */
  scene(first: string): Promise<Source> {
    this.source ??= this.load(first)
    return this.source
  }

  private async load(first: string): Promise<Source> {
    if (!hasWebGL()) throw new Error('this browser has no WebGL')
    try {
      const mujoco = new Mujoco()
      this.mujoco = mujoco
      const source = await environments.getEnvironmentModel({ name: this.environment })
      const model = await mujoco.load({ path: source.path, xml: source.xml, files: source.files.map(({ path, data }) => ({ path, data })) })
      return { model, why: '', poses: (_, episode) => mujoco.poses(statesOf(episode, model.nu)) }
    } catch (error) {
      const why = error instanceof ConnectError ? errorText(error) : error instanceof Error ? error.message : String(error)
      this.close()
      try {
        const { model, poses } = await this.recorded(first)
        return { model, why, poses: async (key) => (key === first ? poses : (await this.recorded(key)).poses) }
      } catch {
        throw new Error(why) // why there is no WebAssembly states more than why there are no recorded poses
      }
    }
  }

  private async recorded(rollout: string) {
    const stored = await artifacts.getRolloutPoses({ rollout }, { timeoutMs: COMPUTE_MS })
    return readPoses(await readRecording(stored.key, 'the poses'))
  }

  take(key: string): Promise<Take> {
    const known = this.takes.get(key)
    if (known !== undefined) return known
    const made = (async () => {
      const [source, episode] = await Promise.all([this.scene(key), readRecording(key, 'the recording').then(readEpisode)])
      const poses = await source.poses(key, episode)
      if (poses.rows === 0) throw new Error('the recording has no finite state')
      return { key, episode, poses, cut: poses.rows <= episode.steps }
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
    this.mujoco = null
  }
}

/** @param keys artifact keys of the rollouts to show, the leading one first. */
export function useScene(environment: string, keys: string[]): SceneState {
  const loader = useRef<Loader | null>(null)
  const [state, setState] = useState<SceneState>({ model: null, takes: [], loading: true, why: '', recorded: '' })
  const wanted = useMemo(() => keys, [keys.join('\n')])
  useEffect(() => {
    loader.current = new Loader(environment)
    return () => loader.current?.close()
  }, [environment])
  useEffect(() => {
    let current = true
    const from = loader.current!
    setState((old) => ({ ...old, loading: true }))
    Promise.all([from.scene(wanted[0]!), ...wanted.map((key) => from.take(key))] as const).then(
      ([source, ...takes]) => current && setState({ model: source.model, takes, loading: false, why: '', recorded: source.why }),
      (error: unknown) => current && setState({ model: null, takes: [], loading: false, why: error instanceof Error ? error.message : String(error), recorded: '' }),
    )
    return () => {
      current = false
    }
  }, [environment, wanted])
  return state
}
