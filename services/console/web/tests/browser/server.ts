// A real server for the tests: `dressage serve` on free ports, which can be killed and started again.
import { type ChildProcess, spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'

export const ROOT = resolve(import.meta.dirname, '../../../../..')
const START_MS = 120_000
export const TOKEN = 'token-of-the-browser-tests'

/** A free port below those that systems give out themselves, which the services of the server take. */
export async function freePort(): Promise<number> {
  for (let attempt = 0; attempt < 50; attempt += 1) {
    const port = 20_000 + Math.floor(Math.random() * 10_000)
    const free = await new Promise<boolean>((done) => {
      const server = createServer()
      server.once('error', () => done(false))
      server.listen(port, '127.0.0.1', () => server.close(() => done(true)))
    })
    if (free) return port
  }
  throw new Error('no free port')
}

export class Server {
  private process: ChildProcess | null = null
  readonly token = TOKEN
  readonly folder = mkdtempSync(join(tmpdir(), 'dressage-console-'))
  url = ''

  private constructor(
    private readonly api: number,
    private readonly console: number,
    private readonly environment: Record<string, string>,
    private readonly options: string[],
  ) {}

  /**
   * @param environment further environment variables of the server.
   * @param options further words of the command.
   */
  static async start(environment: Record<string, string> = {}, options: string[] = []): Promise<Server> {
    const server = new Server(await freePort(), await freePort(), environment, options)
    await server.launch()
    return server
  }

  async launch(): Promise<void> {
    const words = ['serve', '--data-dir', this.folder, '--address', `127.0.0.1:${this.api}`, '--console', `127.0.0.1:${this.console}`, ...this.options]
    const child = spawn(join(ROOT, '.venv/bin/dressage'), words, { env: { ...process.env, DRESSAGE_TOKEN: TOKEN, ...this.environment }, stdio: ['ignore', 'pipe', 'pipe'] })
    this.process = child
    let output = ''
    child.stderr.on('data', (data) => (output += data))
    this.url = await new Promise<string>((done, failed) => {
      const timer = setTimeout(() => failed(new Error(`no address in time: ${output.slice(-2000)}`)), START_MS)
      child.stdout.on('data', (data) => {
        output += data
        // The token is printed on terminals only.
        const found = /console: (http[^\s,]+)/.exec(output)
        if (found !== null) {
          clearTimeout(timer)
          done(`${found[1]!}/#token=${TOKEN}`)
        }
      })
      child.once('exit', () => failed(new Error(`the server ended: ${output.slice(-2000)}`)))
    })
  }

  get base(): string {
    return this.url.replace(/#.*/, '')
  }

  /** As a crash or a power failure would. */
  async kill(): Promise<void> {
    const child = this.process
    if (child === null) return
    const gone = new Promise((done) => child.once('exit', done))
    child.kill('SIGKILL')
    await gone
    this.process = null
  }

  async stop(): Promise<void> {
    const child = this.process
    if (child !== null) {
      const gone = new Promise((done) => child.once('exit', done))
      child.kill('SIGTERM')
      const timer = setTimeout(() => child.kill('SIGKILL'), 30_000)
      await gone
      clearTimeout(timer)
    }
    rmSync(this.folder, { recursive: true, force: true })
  }

  /** Call the API by JSON, as curl would. */
  async call(method: string, body: object, service = 'SessionService'): Promise<Record<string, unknown>> {
    const answer = await fetch(`${this.base}dressage.v1.${service}/${method}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${TOKEN}` },
      body: JSON.stringify(body),
    })
    if (!answer.ok) throw new Error(await answer.text())
    return (await answer.json()) as Record<string, unknown>
  }
}
