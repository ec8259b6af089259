// The worker with MuJoCo as the page calls it: every call has a deadline, after which the worker is stopped.
import type { Answer, Ask } from './mujoco-worker'
import type { Poses, SceneModel, States, XmlModel } from './types'

const LOAD_MS = 60_000
const POSES_MS = 120_000

type Pending = { done: (answer: Answer) => void; failed: (error: Error) => void }
type Question = Ask extends infer One ? (One extends { id: number } ? Omit<One, 'id'> : never) : never

export class Mujoco {
  private readonly worker: Worker
  private readonly pending = new Map<number, Pending>()
  private next = 1

  /** @throws Error if the browser has no WebAssembly. */
  constructor(make: () => Worker = () => new Worker(new URL('./mujoco-worker.ts', import.meta.url), { type: 'module', name: 'mujoco' })) {
    if (typeof WebAssembly !== 'object') throw new Error('this browser has no WebAssembly')
    this.worker = make()
    this.worker.onmessage = (event: MessageEvent<Answer>) => {
      const waiting = this.pending.get(event.data.id)
      this.pending.delete(event.data.id)
      if (event.data.kind === 'error') waiting?.failed(new Error(event.data.message))
      else waiting?.done(event.data)
    }
    this.worker.onerror = (event) => {
      event.preventDefault()
      this.close(event.message || 'the worker with MuJoCo could not be started')
    }
  }

  async load(model: XmlModel): Promise<SceneModel> {
    const answer = await this.ask({ kind: 'model', model }, LOAD_MS)
    return (answer as Extract<Answer, { kind: 'model' }>).scene
  }

  async poses(states: States): Promise<Poses> {
    const answer = await this.ask({ kind: 'poses', states }, POSES_MS)
    return (answer as Extract<Answer, { kind: 'poses' }>).poses
  }

  close(reason = 'closed'): void {
    this.worker.terminate()
    for (const waiting of this.pending.values()) waiting.failed(new Error(reason))
    this.pending.clear()
  }

  private ask(question: Question, milliseconds: number): Promise<Answer> {
    const id = this.next
    this.next += 1
    return new Promise((done, failed) => {
      const timer = setTimeout(() => this.close(`MuJoCo took longer than ${milliseconds / 1000} s`), milliseconds)
      const settle = <T>(then: (value: T) => void) => (value: T) => {
        clearTimeout(timer)
        then(value)
      }
      this.pending.set(id, { done: settle(done), failed: settle(failed) })
      this.worker.postMessage({ id, ...question } as Ask)
    })
  }
}
