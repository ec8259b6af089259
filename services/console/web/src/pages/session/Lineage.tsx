// Which iteration came from which, what changed and what was learned. Any of them can be the next start.
import { Anchor, Badge, Box, Button, Group, Skeleton, Stack, Text } from '@mantine/core'
import { notifications } from '@mantine/notifications'
import { IconGitBranch, IconScale } from '@tabler/icons-react'
import { useMutation } from '@tanstack/react-query'
import { Link, useNavigate } from '@tanstack/react-router'
import { lazy, Suspense } from 'react'

import { errorText, sessions } from '../../api/clients'
import { Empty, Panel, Plain, Problem } from '../../components/basics'
import type { LineageNode } from '../../gen/dressage/v1/session_service_pb'
import { Lesson_Tier } from '../../gen/dressage/v1/session_service_pb'
import { MOST_ITEMS } from '../../lib/compare'
import { isOver, lastPart, scoreText } from '../../lib/format'
import { useLineage } from './data'
import type { TabProps } from './tabs'

const LineageGraph = lazy(() => import('./LineageGraph').then((module) => ({ default: module.LineageGraph })))

const TIERS: Record<Lesson_Tier, [string, string]> = {
  [Lesson_Tier.UNSPECIFIED]: ['unknown', 'gray'],
  [Lesson_Tier.HARD]: ['hard', 'red'],
  [Lesson_Tier.STRONG]: ['strong', 'orange'],
  [Lesson_Tier.SOFT]: ['soft', 'blue'],
  [Lesson_Tier.RETIRED]: ['retired', 'gray'],
}

/** `sessions/a/iterations/3` → `a/3`, as the address of a comparison has it. */
const part = (iteration: string) => iteration.replace(/^sessions\//, '').replace('/iterations/', '/')

/** Depth of each node: a child is drawn one step to the right only where its parent has several children. */
function depths(nodes: LineageNode[]): Map<string, number> {
  const children = new Map<string, string[]>()
  for (const node of nodes) children.set(node.parent, [...(children.get(node.parent) ?? []), node.iteration])
  const result = new Map<string, number>()
  for (const node of nodes) {
    const siblings = children.get(node.parent) ?? []
    const base = result.get(node.parent) ?? 0
    result.set(node.iteration, node.parent === '' ? 0 : base + (siblings.length > 1 && siblings[0] !== node.iteration ? 1 : 0))
  }
  return result
}

export function LineageTab({ name, session, iteration }: TabProps) {
  const lineage = useLineage(name)
  const navigate = useNavigate()
  const rebase = useMutation({
    mutationFn: (number: number) => sessions.steerSession({ name, rebaseTo: number, requestId: crypto.randomUUID() }),
    onSuccess: (_, number) => notifications.show({ message: `The next iteration starts from iteration ${number}.` }),
    onError: (error) => notifications.show({ color: 'red', title: 'Not changed', message: errorText(error) }),
  })
  if (lineage.error !== null) return <Problem error={lineage.error} />
  const nodes = lineage.data?.nodes ?? []
  if (lineage.data !== undefined && nodes.length === 0) return <Empty icon={<IconGitBranch size={22} />} title="No iterations yet" />
  const depth = depths(nodes)
  return (
    <Stack>
      {nodes.length > 1 && (
        <Group justify="flex-end">
          <Button
            component={Link}
            to="/compare"
            search={{ of: nodes.slice(-MOST_ITEMS).map((node) => part(node.iteration)).join(',') } as never}
            size="compact-sm"
            variant="light"
            leftSection={<IconScale size={15} />}
          >
            {nodes.length > MOST_ITEMS ? `Compare the last ${MOST_ITEMS}` : 'Compare all'}
          </Button>
        </Group>
      )}
      {nodes.length > 1 && (
        <Box visibleFrom="sm">
          <Suspense fallback={<Skeleton height={150} />}>
            <LineageGraph
              nodes={nodes}
              shown={iteration}
              scoreOf={(node) => (node.score === undefined ? '–' : scoreText(node.score, session.method))}
              onShow={(number) => void navigate({ to: '/sessions/$id', params: { id: lastPart(name) }, search: { tab: 'lineage', iteration: number } as never, replace: true })}
            />
          </Suspense>
        </Box>
      )}
      <Stack gap="xs" component="ol" p={0} m={0} className="lineage">
        {nodes.map((node) => {
          const number = Number(lastPart(node.iteration))
          return (
            <Box key={node.iteration} component="li" ml={(depth.get(node.iteration) ?? 0) * 24}>
              <Panel
                pad="sm"
                title={
                  <Group gap="xs">
                    <Anchor component={Link} to="/sessions/$id" params={{ id: name.split('/')[1] } as never} search={{ tab: 'code', iteration: number } as never} fw={600} size="sm">
                      {`Iteration ${number}`}
                    </Anchor>
                    {node.best && <Badge size="xs">best</Badge>}
                    {number === iteration && (
                      <Badge size="xs" variant="light" color="gray">
                        shown
                      </Badge>
                    )}
                    {node.structuralRewrite && (
                      <Badge size="xs" variant="light" color="grape">
                        rewrite
                      </Badge>
                    )}
                    {node.edited.map((part) => (
                      <Badge key={part} size="xs" variant="light" color="grape">{`${part} edited`}</Badge>
                    ))}
                  </Group>
                }
                right={
                  <Group gap="sm">
                    <Text size="sm" fw={600} className="numbers">
                      {node.score === undefined ? '–' : scoreText(node.score, session.method)}
                      {node.intervalLow !== undefined && (
                        <Text span size="xs" c="dimmed">{` (${scoreText(node.intervalLow, session.method)} to ${scoreText(node.intervalHigh ?? 0, session.method)})`}</Text>
                      )}
                    </Text>
                    {node.parent !== '' && (
                      <Button component={Link} to="/compare" search={{ of: [node.parent, node.iteration].map(part).join(',') } as never} size="compact-xs" variant="subtle" color="gray">
                        compare with its parent
                      </Button>
                    )}
                    {!isOver(session.state) && (
                      <Button size="compact-xs" variant="light" onClick={() => rebase.mutate(number)} loading={rebase.isPending}>
                        start the next from here
                      </Button>
                    )}
                  </Group>
                }
              >
                <Stack gap={4}>
                  <Text size="xs" c="dimmed">
                    {[node.parent === '' ? 'a first proposal' : `from iteration ${lastPart(node.parent)}`, `by ${node.author}`, node.judgedBy && `judged by ${node.judgedBy}`].filter(Boolean).join(', ')}
                  </Text>
                  {node.plannedChange !== '' && <Plain>{node.plannedChange}</Plain>}
                  {node.lesson !== '' && <Plain c="dimmed">{`Lesson: ${node.lesson}`}</Plain>}
                  {node.notes.map((note) => (
                    <Plain key={note}>{`Your note: ${note}`}</Plain>
                  ))}
                  {node.warnings.map((warning) => (
                    <Plain key={warning} size="xs" c="yellow.9">
                      {warning}
                    </Plain>
                  ))}
                </Stack>
              </Panel>
            </Box>
          )
        })}
      </Stack>
      {(lineage.data?.lessons.length ?? 0) > 0 && (
        <Panel title="Lessons">
          <Stack gap={6}>
            {lineage.data?.lessons.map((lesson) => (
              <Group key={`${lesson.number}`} gap="sm" wrap="nowrap" align="flex-start">
                <Badge size="sm" variant="light" color={TIERS[lesson.tier][1]} miw={70}>
                  {TIERS[lesson.tier][0]}
                </Badge>
                <Plain td={lesson.tier === Lesson_Tier.RETIRED ? 'line-through' : undefined!}>{lesson.text}</Plain>
              </Group>
            ))}
          </Stack>
        </Panel>
      )}
    </Stack>
  )
}
