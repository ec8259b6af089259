// A scripted provider of a language model: the HTTP server of tests/fakes with one of its scripts.
import { type ChildProcess, spawn } from 'node:child_process'
import { join } from 'node:path'

import { expect } from '@playwright/test'

import { freePort, ROOT } from './server'

/** A vision model with a known price, whose provider is scripted. */
export const MODEL = 'openai/gpt-4o'

export class Provider {
  private constructor(
    private readonly process: ChildProcess,
    private readonly port: number,
  ) {}

  /** @param script name of a file in tests/fakes/scripts. */
  static async start(script: string): Promise<Provider> {
    const port = await freePort()
    const words = ['tests/fakes/openai_server.py', '--script', `tests/fakes/scripts/${script}.py`, '--port', String(port)]
    const provider = new Provider(spawn(join(ROOT, '.venv/bin/python'), words, { cwd: ROOT, stdio: 'inherit' }), port)
    await expect.poll(() => provider.counts().then(() => true, () => false), { timeout: 60_000 }).toBe(true)
    return provider
  }

  /** What the server needs to know. */
  get environment(): Record<string, string> {
    return { OPENAI_API_KEY: 'sk-any' }
  }

  get options(): string[] {
    return ['--api-base', `http://127.0.0.1:${this.port}/v1`]
  }

  /** Requests so far, those without an answer, and answers that were not used. */
  async counts(): Promise<{ requests: number; unexpected: number; left: number }> {
    return (await (await fetch(`http://127.0.0.1:${this.port}/`)).json()) as { requests: number; unexpected: number; left: number }
  }

  stop(): void {
    this.process.kill('SIGKILL')
  }
}
