// Adds sessions to the comparison.
import { Select } from '@mantine/core'
import { IconPlus } from '@tabler/icons-react'
import { useQuery } from '@tanstack/react-query'

import { sessions } from '../../api/clients'
import { environmentId, short } from '../../lib/format'

const LISTED = 300

export function Picker({ onAdd, full }: { onAdd: (session: string) => void; full: boolean }) {
  const list = useQuery({ queryKey: ['sessions', 'picker'], queryFn: ({ signal }) => sessions.listSessions({ pageSize: LISTED }, { signal }), staleTime: 10_000 })
  return (
    <Select
      aria-label="Add a session"
      placeholder={full ? 'No more can be compared' : 'Add a session'}
      leftSection={<IconPlus size={16} />}
      disabled={full}
      searchable
      limit={60}
      maxDropdownHeight={360}
      nothingFoundMessage="No session matches"
      w={{ base: '100%', xs: 420 }}
      data={(list.data?.sessions ?? []).map((session) => ({
        value: session.name.split('/')[1]!,
        label: `${session.spec?.intent.slice(0, 70)} (${environmentId(session.spec?.environment ?? '')}, ${session.method}${session.bestScore === undefined ? '' : `, ${short(session.bestScore)}`}) ${session.name.split('/')[1]}`,
      }))}
      value={null}
      onChange={(value) => value !== null && onAdd(value)}
    />
  )
}
