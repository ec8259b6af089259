// The files of a session, to look at or to download.
import { ActionIcon, Anchor, Box, Group, Stack, Table, Text, TextInput, Tooltip } from '@mantine/core'
import { IconDownload, IconFiles, IconSearch } from '@tabler/icons-react'
import { useInfiniteQuery } from '@tanstack/react-query'
import { useEffect, useState } from 'react'

import { artifacts, artifactUrl } from '../../api/clients'
import { Command, Empty, Panel, Problem } from '../../components/basics'
import { bytes, seconds } from '../../lib/format'
import type { TabProps } from './tabs'

const SHOWN = /\.(mp4|png|jpe?g|gif|webp|json|jsonl|py|txt|md|csv|log)$/i
const MOST = 400
/** Of a thousand files each; the search covers what was read. */
const MOST_PAGES = 20

export function Artifacts({ name }: TabProps) {
  const [text, setText] = useState('')
  const list = useInfiniteQuery({
    queryKey: ['session', name, 'artifacts'],
    queryFn: ({ pageParam, signal }) => artifacts.listArtifacts({ prefix: `${name}/`, pageSize: 1000, pageToken: pageParam }, { signal }),
    initialPageParam: '',
    getNextPageParam: (page) => page.nextPageToken || undefined,
  })
  const pages = list.data?.pages.length ?? 0
  useEffect(() => {
    if (list.hasNextPage && !list.isFetchingNextPage && pages < MOST_PAGES) void list.fetchNextPage()
  }, [list.hasNextPage, list.isFetchingNextPage, pages])
  if (list.error !== null) return <Problem error={list.error} />
  const all = list.data?.pages.flatMap((page) => page.artifacts) ?? []
  const shown = all.filter((entry) => text.toLowerCase().split(/\s+/).every((word) => entry.key.toLowerCase().includes(word)))
  const total = all.reduce((sum, entry) => sum + Number(entry.size), 0)
  if (list.data !== undefined && all.length === 0) return <Empty icon={<IconFiles size={22} />} title="No files yet" />
  return (
    <Panel
      title="Files"
      right={
        <Text size="xs" c="dimmed" className="numbers">
          {`${all.length}${list.hasNextPage ? ' or more' : ''} files, ${bytes(total)}`}
        </Text>
      }
    >
      <Stack gap="sm">
        <Group>
          <TextInput aria-label="Search files" placeholder="video, policy, rollouts" leftSection={<IconSearch size={15} />} value={text} onChange={(event) => setText(event.currentTarget.value)} flex={1} />
        </Group>
        <Table.ScrollContainer minWidth={300} maxHeight={560}>
          <Table fz="sm" verticalSpacing={4} stickyHeader>
            <Table.Thead>
              <Table.Tr>
                <Table.Th>File</Table.Th>
                <Table.Th ta="right">Size</Table.Th>
                <Table.Th visibleFrom="sm">Written</Table.Th>
                <Table.Th aria-label="Download" />
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {shown.slice(0, MOST).map((entry) => {
                const path = entry.key.slice(name.length + 1)
                const time = seconds(entry.updateTime)
                return (
                  <Table.Tr key={entry.key}>
                    <Table.Td className="plain">
                      {SHOWN.test(entry.key) ? (
                        <Anchor href={artifactUrl(entry.key)} target="_blank" rel="noopener" size="sm" className="plain">
                          {path}
                        </Anchor>
                      ) : (
                        path
                      )}
                    </Table.Td>
                    <Table.Td ta="right" className="numbers one-line">
                      {bytes(entry.size)}
                    </Table.Td>
                    <Table.Td className="numbers" visibleFrom="sm">{time === null ? '' : new Date(time * 1000).toLocaleString()}</Table.Td>
                    <Table.Td>
                      <Tooltip label="download">
                        <ActionIcon component="a" variant="subtle" color="gray" href={artifactUrl(entry.key, true)} aria-label={`Download ${path}`}>
                          <IconDownload size={15} />
                        </ActionIcon>
                      </Tooltip>
                    </Table.Td>
                  </Table.Tr>
                )
              })}
            </Table.Tbody>
          </Table>
        </Table.ScrollContainer>
        {(shown.length > MOST || list.hasNextPage) && (
          <Text size="xs" c="dimmed">{`The first ${Math.min(MOST, shown.length)} are listed; search to narrow them down.`}</Text>
        )}
        <Box>
          <Text size="xs" c="dimmed" mb={4}>
            All of them
          </Text>
          <Command text={`dressage artifacts get ${name} --out files`} />
        </Box>
      </Stack>
    </Panel>
  )
}
