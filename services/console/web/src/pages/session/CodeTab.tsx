// The proposal as code, its difference from any iteration, its formula and terms, and the judge.
import { Grid, Group, SegmentedControl, Select, Skeleton, Stack, Table, Text } from '@mantine/core'
import { IconCode } from '@tabler/icons-react'
import { useQuery } from '@tanstack/react-query'
import { lazy, Suspense, useState } from 'react'

import { artifactUrl } from '../../api/clients'
import { CodeView, DiffView } from '../../components/CodeView'
import { Empty, Panel, Problem } from '../../components/basics'
import { Candidates } from './Candidates'
import { sourceOf, useIterations } from './data'
import { Parameters } from './Parameters'
import { ProgramRun } from './ProgramRun'
import type { TabProps } from './tabs'

const Formula = lazy(() => import('../../components/Formula').then((module) => ({ default: module.Formula })))

export function CodeTab({ name, session, iteration }: TabProps) {
  const iterations = useIterations(name)
  const [view, setView] = useState('code')
  const [other, setOther] = useState<string | null>(null)
  const judge = useQuery({
    queryKey: ['session', name, 'judge'],
    queryFn: async ({ signal }) => {
      if (session.spec?.judgeSource) return session.spec.judgeSource
      const answer = await fetch(artifactUrl(`${name}/iterations/1/judge.py`), { signal })
      return answer.ok ? answer.text() : ''
    },
    enabled: session.method === 'reward' && view === 'judge',
  })
  if (iterations.error !== null) return <Problem error={iterations.error} />
  if (iterations.data === undefined) return <Skeleton h={300} radius="md" />
  const entry = iterations.data.find((candidate) => candidate.number === iteration)
  const source = sourceOf(entry)
  const others = iterations.data.filter((candidate) => candidate.number !== iteration && sourceOf(candidate) !== null)
  const parent = entry?.parent.split('/').pop()
  const against = other ?? parent ?? (others.at(-1)?.number.toString() || null)
  const before = sourceOf(iterations.data.find((candidate) => String(candidate.number) === against))
  if (source === null) {
    return (
      <Empty icon={<IconCode size={22} />} title="No proposal yet">
        The code appears here as soon as its author has written it.
      </Empty>
    )
  }
  const reward = entry?.proposal.case === 'reward' ? entry.proposal.value : null
  const views = ['code', ...(others.length > 0 ? ['difference'] : []), ...(session.method === 'reward' && session.spec?.methodSpec.case === 'reward' && !session.spec.methodSpec.value.trainOnly ? ['judge'] : [])]
  return (
    <Grid gap="md">
      <Grid.Col span={{ base: 12, md: reward === null ? 12 : 8 }}>
        <Stack gap="sm">
          {views.length > 1 && (
            <Group>
              <SegmentedControl data={views} value={view} onChange={setView} aria-label="View" />
              {view === 'difference' && (
                <Select
                  aria-label="Compared with"
                  w={200}
                  data={others.map((candidate) => ({ value: String(candidate.number), label: `from iteration ${candidate.number}` }))}
                  value={against}
                  onChange={setOther}
                  allowDeselect={false}
                />
              )}
            </Group>
          )}
          {view === 'code' && <CodeView code={source.text} language={source.language} label={source.title} />}
          {view === 'difference' && before !== null && <DiffView before={before.text} after={source.text} label={`difference from iteration ${against}`} />}
          {view === 'judge' && (judge.data ? <CodeView code={judge.data} label="judge.py" /> : <Text size="sm" c="dimmed">{judge.isFetching ? 'loading' : 'No judge yet.'}</Text>)}
          {entry?.proposal.case === 'parameters' && <Parameters session={session} values={entry.proposal.value.values} />}
          {entry?.proposal.case === 'program' && view === 'code' && <ProgramRun name={name} iteration={iteration} />}
          {entry !== undefined && view === 'code' && <Candidates iteration={entry} />}
        </Stack>
      </Grid.Col>
      {reward !== null && (
        <Grid.Col span={{ base: 12, md: 4 }}>
          <Stack>
            {reward.latex !== '' && (
              <Panel title="Formula">
                <Suspense fallback={<Text size="sm" className="plain">{reward.latex}</Text>}>
                  <Formula latex={reward.latex} />
                </Suspense>
              </Panel>
            )}
            <Panel title="Terms">
              <Table fz="sm" verticalSpacing={6}>
                <Table.Tbody>
                  {Object.entries(reward.terms).map(([term, meaning]) => (
                    <Table.Tr key={term}>
                      <Table.Td fw={600} className="plain" miw={110}>
                        {term}
                      </Table.Td>
                      <Table.Td className="plain">{meaning}</Table.Td>
                    </Table.Tr>
                  ))}
                </Table.Tbody>
              </Table>
            </Panel>
            {reward.configScores.length > 0 && (
              <Panel title="Configs">
                <Table fz="sm" verticalSpacing={6}>
                  <Table.Tbody>
                    {reward.configScores.map((config) => (
                      <Table.Tr key={config.config}>
                        <Table.Td fw={config.config === reward.bestConfig ? 600 : 400}>{config.config}</Table.Td>
                        <Table.Td ta="right" className="numbers">{`${config.score.toFixed(2)} (${config.intervalLow.toFixed(2)} to ${config.intervalHigh.toFixed(2)})`}</Table.Td>
                      </Table.Tr>
                    ))}
                  </Table.Tbody>
                </Table>
                {reward.hyperparameterReasoning !== '' && (
                  <Text size="xs" c="dimmed" mt="xs" className="plain">
                    {reward.hyperparameterReasoning}
                  </Text>
                )}
              </Panel>
            )}
          </Stack>
        </Grid.Col>
      )}
    </Grid>
  )
}
