// The state of a session at a glance: video, curve, scores of all iterations, warnings, and how to steer it.
import { Anchor, Badge, Box, Button, Grid, Group, Stack, Table, Text } from '@mantine/core'
import { IconAlertTriangle, IconDownload } from '@tabler/icons-react'
import { Link } from '@tanstack/react-router'

import { artifactUrl } from '../../api/clients'
import { Chart, Legend, useColors } from '../../components/Chart'
import { Panel, Plain } from '../../components/basics'
import { clock, isOver, originText, phaseName, score, scoreText } from '../../lib/format'
import { linesOf, metricTitle } from './Curves'
import { useIterations } from './data'
import { Criteria } from './JudgmentTab'
import type { TabProps } from './tabs'
import { Steer } from './Steer'

const FIRST = ["judge's score", 'evaluation/proposed return', 'episode_return']

export function Overview({ name, session, live, iteration }: TabProps) {
  const color = useColors()
  const iterations = useIterations(name)
  const at = live.session.iterations.get(iteration)
  const names = live.session.metricNames(iteration)
  const metrics = FIRST.filter((metric) => names.includes(metric)).slice(0, 2)
  const entry = iterations.data?.find((candidate) => candidate.number === iteration)
  const members = [...(at?.members.values() ?? [])]
  const warnings = live.session.warnings.filter((warning) => warning.iteration === iteration || warning.iteration === 0)
  const search = at?.search
  const file = session.policyOrigin?.interrupted ? 'policy.safetensors' : 'policy.onnx'
  const scored = (iterations.data ?? []).filter((row) => row.score !== undefined)
  return (
    <Grid gap="md">
      <Grid.Col span={{ base: 12, md: 7 }}>
        <Stack>
          {(session.bestPolicy !== '' || session.bestVideo !== '') && (
            <Panel
              title="Best policy"
              right={
                <Group gap="xs">
                  {session.bestVideo !== '' && (
                    <Anchor size="xs" href={artifactUrl(session.bestVideo, true)} download>
                      video
                    </Anchor>
                  )}
                  {session.bestPolicy !== '' && (session.method === 'reward' || session.bestVideo !== '') && (
                    <Button component="a" size="compact-xs" variant="light" href={artifactUrl(`${session.bestPolicy}/${file}`, true)} leftSection={<IconDownload size={13} />}>
                      {file}
                    </Button>
                  )}
                </Group>
              }
            >
              {session.bestVideo !== '' && <video src={artifactUrl(session.bestVideo)} controls loop muted playsInline preload="metadata" aria-label="Video of the best policy" />}
              <Text size="sm">{originText(session)}</Text>
            </Panel>
          )}
          {(metrics.length > 0 || (search?.x.length ?? 0) > 0) && (
            <Panel title={`Curves of iteration ${iteration}`} right={<Legend lines={members.map((member, index) => ({ label: member.id, color: color(index) }))} />}>
              <Stack gap="sm">
                {search !== undefined && search.x.length > 0 && (
                  <Chart title="best score of the search" lines={[{ label: 'best', ...search, color: color(0), dots: search.x.length < 60 }]} xLabel="candidates" height={170} sync="search" />
                )}
                {metrics.map((metric) => (
                  <Chart
                    key={metric}
                    title={metricTitle(metric)}
                    lines={linesOf(at, metric, color)}
                    xLabel="environment steps"
                    until={Math.max(0, ...members.map((member) => member.steps))}
                    height={170}
                    goal={metric === "judge's score" ? session.spec?.passThreshold : undefined}
                  />
                ))}
              </Stack>
            </Panel>
          )}
          {metrics.length === 0 && (search?.x.length ?? 0) === 0 && scored.length > 1 && (
            <Chart title="score by iteration" lines={[{ label: 'score', x: scored.map((row) => row.number), y: scored.map((row) => row.score!), color: color(0), dots: true }]} xLabel="iterations" height={170} whole />
          )}
          <Panel title="Iterations" pad="sm">
            <Table.ScrollContainer minWidth={300}>
              <Table verticalSpacing={6} fz="sm" highlightOnHover>
                <Table.Thead>
                  <Table.Tr>
                    <Table.Th>#</Table.Th>
                    <Table.Th visibleFrom="sm">Phase</Table.Th>
                    <Table.Th ta="right">Score</Table.Th>
                    <Table.Th ta="right" visibleFrom="sm">Fresh seeds</Table.Th>
                    <Table.Th>Change</Table.Th>
                  </Table.Tr>
                </Table.Thead>
                <Table.Tbody>
                  {(iterations.data ?? []).map((row) => (
                    <Table.Tr key={row.number} data-active={row.number === iteration || undefined}>
                      <Table.Td>
                        <Group gap={6} wrap="nowrap">
                          <Anchor component={Link} to="/sessions/$id" params={{ id: name.split('/')[1] } as never} search={{ iteration: row.number } as never} size="sm" fw={600}>
                            {row.number}
                          </Anchor>
                          {row.name === session.bestIteration && (
                            <Badge size="xs" variant="light" className="whole">
                              best
                            </Badge>
                          )}
                        </Group>
                      </Table.Td>
                      <Table.Td visibleFrom="sm">{phaseName(row.phase)}</Table.Td>
                      <Table.Td ta="right" className="numbers">
                        {row.score === undefined ? '–' : scoreText(row.score, session.method)}
                      </Table.Td>
                      <Table.Td ta="right" className="numbers" visibleFrom="sm">
                        {row.confirmedScore === undefined ? '–' : scoreText(row.confirmedScore, session.method)}
                      </Table.Td>
                      <Table.Td maw={360}>
                        <Text size="sm" className="plain" lineClamp={2}>
                          {row.plannedChange || (row.number === 1 ? 'first proposal' : row.author)}
                        </Text>
                      </Table.Td>
                    </Table.Tr>
                  ))}
                </Table.Tbody>
              </Table>
            </Table.ScrollContainer>
            {iterations.data?.length === 0 && (
              <Text size="sm" c="dimmed" p="xs">
                None has begun.
              </Text>
            )}
          </Panel>
        </Stack>
      </Grid.Col>
      <Grid.Col span={{ base: 12, md: 5 }}>
        <Stack>
          {entry?.judgment !== undefined && (
            <Panel title={`Judgment of iteration ${iteration}`} right={<Badge variant="light" color={entry.judgment.passed ? 'teal' : 'yellow'}>{score(entry.judgment.score)}</Badge>}>
              <Criteria judgment={entry.judgment} />
              <Plain mt="sm">{entry.judgment.diagnosis}</Plain>
            </Panel>
          )}
          {entry !== undefined && (entry.diagnosis !== '' || entry.lesson !== '') && (
            <Panel title="Why it changed">
              <Stack gap={6}>
                {entry.diagnosis !== '' && <Labelled label="Diagnosis">{entry.diagnosis}</Labelled>}
                {entry.plannedChange !== '' && <Labelled label="Change">{entry.plannedChange}</Labelled>}
                {entry.lesson !== '' && <Labelled label="Lesson">{entry.lesson}</Labelled>}
              </Stack>
            </Panel>
          )}
          {warnings.length > 0 && (
            <Panel title="Warnings" right={<Badge color="yellow" variant="light">{warnings.length}</Badge>}>
              <Stack gap="xs">
                {warnings.slice(-8).map((warning, index) => (
                  <Group key={index} gap="xs" wrap="nowrap" align="flex-start">
                    <Box c="yellow.8" pt={2}>
                      <IconAlertTriangle size={16} aria-hidden />
                    </Box>
                    <Box miw={0}>
                      <Plain>{warning.message}</Plain>
                      <Text size="xs" c="dimmed">{`${warning.reason}, ${clock(warning.time)}`}</Text>
                    </Box>
                  </Group>
                ))}
              </Stack>
            </Panel>
          )}
          {!isOver(session.state) && <Steer name={name} session={session} />}
        </Stack>
      </Grid.Col>
    </Grid>
  )
}

function Labelled({ label, children }: { label: string; children: string }) {
  return (
    <Box>
      <Text size="xs" c="dimmed">
        {label}
      </Text>
      <Plain>{children}</Plain>
    </Box>
  )
}
