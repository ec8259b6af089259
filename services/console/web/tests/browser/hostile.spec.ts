// Text of models, of generated code and of people that tries to be more than text: in replies, sources, failures, notes and remarks.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { expect, test } from '@playwright/test'

import { Server } from './server'
import { MARKUP, onlyText, TERMINAL, watchRequests } from './text_only'
import { logIn, type Visit, visit } from './visit'

const HUGE = 'long '.repeat(20_000) // 100 kB
const folder = mkdtempSync(join(tmpdir(), 'dressage-hostile-'))
let server: Server
let seen: Visit

test.describe.configure({ mode: 'serial' })

const reply = (mark: string, body: string) => `## Explanation
${mark} ${MARKUP} ${TERMINAL} ${HUGE}

\`\`\`python
# ${mark} ${MARKUP}
class Policy:
    """${mark} <script>alert(4)</script></code></pre><img src=x onerror=alert(5)>"""

    def reset(self):
        pass

    def act(self, obs):
        ${body}
\`\`\`
`

const REWARD = `LATEX = r"\\\\href{javascript:alert(6)}{v} <img src=x onerror=alert(7)>"
TERMS = {"speed": "<img src=x onerror=alert(8)> forward velocity"}


def reward(state, action, next_state, memory, np):
    """<script>alert(9)</script>"""
    return {"speed": next_state.x_velocity}
`

async function ended(id: string): Promise<void> {
  await expect
    .poll(async () => (await server.call('GetSession', { name: `sessions/${id}` })).state, { timeout: 200_000, intervals: [1_000] })
    .toMatch(/SUCCEEDED|EXHAUSTED|FAILED/)
}

test.beforeAll(async ({ browser }) => {
  test.setTimeout(420_000)
  const author = join(folder, 'hostile/llm/iterations/1/policy_author')
  const write = (path: string, text: string) => {
    mkdirSync(join(path, '..'), { recursive: true })
    writeFileSync(path, text)
  }
  write(join(folder, 'hostile/session.json'), JSON.stringify({ intent: 'balance the pole', environment: 'environments/CartPole-v1' }))
  write(join(author, '1/0-0.md'), reply('first-mark', 'return int(obs[2] > 0)'))
  const failing = `raise ValueError("failure-mark <img src=x onerror=alert(10)>")`
  write(join(author, '2/0-0.md'), reply('second-mark', failing))
  write(join(folder, 'hostile/llm/iterations/1/policy_fixer/2/1/0-0.md'), reply('fixer-mark', failing))
  server = await Server.start({}, ['--recordings', folder])
  const code = { candidates: 2, reportEpisodes: 5 }
  await server.call('CreateSession', { sessionId: 'code-1', spec: { intent: 'balance the pole', environment: 'environments/CartPole-v1', model: 'recorded/hostile', maxIterations: 1, code } })
  const reward = { seeds: 1, stepsPerMember: '2048', maxStepsPerMember: '2048', evaluations: 1, evaluationEpisodes: 3, rewardSource: REWARD, trainOnly: true }
  await server.call('CreateSession', { sessionId: 'hop-1', spec: { intent: 'hop', environment: 'environments/Hopper-v5', reward } })
  await server.call('SteerSession', { name: 'sessions/hop-1', note: `note-mark ${MARKUP} ${TERMINAL}` })
  for (const id of ['code-1', 'hop-1']) await ended(id)
  const listed = (await server.call('ListAssignments', { parent: 'sessions/hop-1/iterations/1' })) as { assignments: { members: { evaluations: { rollouts: { artifact: string }[] }[] }[] }[] }
  const rollout = listed.assignments[0]!.members[0]!.evaluations.at(-1)!.rollouts[0]!.artifact
  await server.call('LabelRollout', { rollout, score: 0.5, comment: `remark-mark ${MARKUP} ${TERMINAL}` })
  seen = await visit(browser)
  watchRequests(seen, server.base)
  await logIn(seen.page, server.url)
})

test.afterAll(async () => {
  await seen?.context.close()
  await server?.stop()
  rmSync(folder, { recursive: true, force: true })
})

const SHOWN: [string, string, RegExp[]][] = [
  ['code-1', 'code', [/first-mark <img src=x onerror="alert\(1\)">/]],
  ['code-1', 'conversation', [/first-mark/]],
  ['code-1', 'overview', []],
  ['code-1', 'judgment', []],
  ['code-1', 'events', [/second-mark <img src=x/]],
  ['code-1', 'artifacts', [/policy_author/]],
  ['code-1', 'lineage', []],
  ['hop-1', 'code', [/<img src=x onerror=alert\(8\)> forward velocity/, /<script>alert\(9\)<\/script>/]],
  ['hop-1', 'curves', []],
  ['hop-1', 'events', [/note-mark <img src=x/]],
  ['hop-1', 'rollouts', [/people 0\.50/]],
  ['hop-1', 'lineage', []],
]

for (const [session, tab, texts] of SHOWN) {
  test(`is text in ${tab} of ${session}`, async () => {
    await seen.page.goto(`${server.base}sessions/${session}?tab=${tab}`)
    await expect(seen.page.locator('.mantine-Skeleton-root:visible')).toHaveCount(0)
    for (const text of texts) await expect(seen.page.getByText(text).first()).toBeVisible()
    await seen.page.waitForTimeout(500)
    await onlyText(seen)
  })
}

test('is text in transcripts, at their whole length', async () => {
  const { page } = seen
  await page.goto(`${server.base}sessions/code-1?tab=conversation`)
  await page.getByText('transcripts', { exact: true }).click()
  await expect(page.locator('.transcript').getByText(/-mark <img src=x onerror="alert\(1\)">/).first()).toBeVisible()
  await onlyText(seen)
})

test('is text in the remark of a person', async () => {
  const { page } = seen
  await page.goto(`${server.base}sessions/hop-1?tab=rollouts`)
  await page.getByText('people 0.50').first().hover()
  await expect(page.getByRole('tooltip').getByText(/remark-mark <img src=x/)).toBeVisible()
  await onlyText(seen)
})
