// Conversations with models, from the journal that the server keeps of them among a session's artifacts.
export type Turn = { key: string; turn: number; sample: number }
/** One task of a role, such as the first reward; a task with several samples has one conversation for each. */
export type Task = { id: string; role: string; iteration: number; turns: Turn[] }

/** The tasks of a session, from the keys `sessions/{s}/llm/{task}/{turn}-{sample}.json`; results of tools are part of later turns. */
export function tasksOf(keys: readonly string[]): Task[] {
  const tasks = new Map<string, Task>()
  for (const key of keys) {
    const [, path, turn, sample] = /^sessions\/[^/]+\/llm\/(.+)\/(\d+)-(\d+)\.json$/.exec(key) ?? []
    if (path === undefined) continue
    const id = `${path}#${sample}`
    const words = path.split('/')
    const role = words.find((word, index) => /^[a-z][a-z_]*$/.test(word) && word !== 'iterations' && words[index - 1] !== 'assignments') ?? path
    const iteration = words[0] === 'iterations' ? Number(words[1]) || 0 : 0
    const task = tasks.get(id) ?? { id, role, iteration, turns: [] }
    task.turns.push({ key, turn: Number(turn), sample: Number(sample) })
    tasks.set(id, task)
  }
  for (const task of tasks.values()) task.turns.sort((a, b) => a.turn - b.turn)
  return [...tasks.values()].sort((a, b) => a.iteration - b.iteration || a.id.localeCompare(b.id, 'en', { numeric: true }))
}

export type Message = { role: string; text: string; calls: { name: string; arguments: string }[]; attachments: string[] }
export type Entry = { model: string; time: string; messages: Message[]; tokensIn: number; tokensOut: number; dollars: number | null }

const text = (value: unknown): string => (typeof value === 'string' ? value : value === undefined || value === null ? '' : JSON.stringify(value, null, 2))
const list = (value: unknown): Record<string, unknown>[] => (Array.isArray(value) ? (value as Record<string, unknown>[]) : [])

function calls(value: unknown): Message['calls'] {
  return list(value).map((call) => ({ name: text(call.name), arguments: text(call.arguments) }))
}

/** An entry of the journal: the whole conversation until its reply, which is the last message. Null if it is not one. */
export function readEntry(json: string): Entry | null {
  let entry: Record<string, unknown>
  try {
    entry = JSON.parse(json) as Record<string, unknown>
  } catch {
    return null
  }
  const reply = entry.reply as Record<string, unknown> | undefined
  if (entry.kind !== 'reply' || reply === undefined) return null
  const usage = (entry.usage ?? {}) as Record<string, unknown>
  const messages = list(entry.messages).map((message) => ({
    role: text(message.role),
    text: text(message.content),
    calls: calls(message.tool_calls),
    attachments: list(message.attachments).map((file) => text(file.key)),
  }))
  return {
    model: text(entry.model),
    time: text(entry.time),
    messages: [...messages, { role: 'reply', text: text(reply.text), calls: calls(reply.tool_calls), attachments: [] }],
    tokensIn: Number(usage.input_tokens ?? 0),
    tokensOut: Number(usage.output_tokens ?? 0),
    dollars: typeof usage.dollars === 'number' ? usage.dollars : null,
  }
}
