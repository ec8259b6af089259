// Small parts that every page uses.
import { ActionIcon, Alert, Badge, Box, Button, Code, CopyButton, Group, Paper, Stack, Text, type TextProps, ThemeIcon, Title, Tooltip } from '@mantine/core'
import { IconAlertTriangle, IconCheck, IconCopy } from '@tabler/icons-react'
import { type KeyboardEvent, type ReactNode, useState } from 'react'

import { errorText } from '../api/clients'
import { SessionState } from '../gen/dressage/v1/session_pb'
import { stateName } from '../lib/format'

const COLORS: Partial<Record<SessionState, string>> = {
  [SessionState.RUNNING]: 'blue',
  [SessionState.SUCCEEDED]: 'teal',
  [SessionState.EXHAUSTED]: 'yellow',
  [SessionState.FAILED]: 'red',
}

export function StateBadge({ state, waiting = false }: { state: SessionState; waiting?: boolean }) {
  if (waiting) {
    return (
      <Badge variant="light" color="grape" className="whole">
        needs approval
      </Badge>
    )
  }
  return (
    <Badge variant="light" color={COLORS[state] ?? 'gray'} leftSection={state === SessionState.RUNNING ? <span className="pulse" /> : undefined} className="whole">
      {stateName(state)}
    </Badge>
  )
}

export function Panel({ title, right, children, pad = 'md' }: { title?: ReactNode; right?: ReactNode; children: ReactNode; pad?: string }) {
  return (
    <Paper withBorder radius="md" p={pad} component="section">
      {title !== undefined && (
        <Group justify="space-between" mb="sm" gap="xs" wrap="wrap">
          <Title order={2} size="h5" fw={600}>
            {title}
          </Title>
          {right}
        </Group>
      )}
      {children}
    </Paper>
  )
}

export function Fact({ label, children, hint }: { label: string; children: ReactNode; hint?: string }) {
  const body = (
    <Box miw={84}>
      <Text size="xs" c="dimmed">
        {label}
      </Text>
      <Text component="div" size="sm" fw={500} className="numbers">
        {children}
      </Text>
    </Box>
  )
  return hint === undefined ? body : <Tooltip label={hint}>{body}</Tooltip>
}

const FOLDED = 1_500

/** Text of people and models, as they wrote it; what is longer than a paragraph unfolds on request. */
export function Plain({ children, ...props }: TextProps & { children: string }) {
  const [open, setOpen] = useState(false)
  const long = children.length > FOLDED
  return (
    <Box>
      <Text size="sm" className="plain" {...props}>
        {long && !open ? `${children.slice(0, FOLDED)} …` : children}
      </Text>
      {long && (
        <Button size="compact-xs" variant="subtle" aria-expanded={open} onClick={() => setOpen(!open)}>
          {open ? 'fold' : `all ${children.length.toLocaleString('en')} characters`}
        </Button>
      )}
    </Box>
  )
}

export function Problem({ error, title = 'Something went wrong' }: { error: unknown; title?: string }) {
  return (
    <Alert color="red" icon={<IconAlertTriangle size={18} />} title={title} role="alert">
      <Text size="sm" className="plain">
        {errorText(error)}
      </Text>
    </Alert>
  )
}

export function Empty({ icon, title, children }: { icon: ReactNode; title: string; children?: ReactNode }) {
  return (
    <Stack align="center" py="xl" gap="xs">
      <ThemeIcon size={44} radius="xl" variant="light" color="gray">
        {icon}
      </ThemeIcon>
      <Text fw={600}>{title}</Text>
      <Text size="sm" c="dimmed" ta="center" maw={460} component="div">
        {children}
      </Text>
    </Stack>
  )
}

/** Page Up and Page Down move a slider by a tenth of its length; its arrows make single steps. */
export function pageKeys(seek: (to: number) => void, now: number, length: number) {
  return (event: KeyboardEvent) => {
    if (event.key !== 'PageUp' && event.key !== 'PageDown') return
    event.preventDefault()
    seek(Math.min(Math.max(now + (event.key === 'PageUp' ? 0.1 : -0.1) * length, 0), length))
  }
}

export function Copy({ value, label }: { value: string; label: string }) {
  return (
    <CopyButton value={value} timeout={1500}>
      {({ copied, copy }) => (
        <Tooltip label={copied ? 'copied' : label}>
          <ActionIcon variant="subtle" color={copied ? 'teal' : 'gray'} onClick={copy} aria-label={label}>
            {copied ? <IconCheck size={16} /> : <IconCopy size={16} />}
          </ActionIcon>
        </Tooltip>
      )}
    </CopyButton>
  )
}

export function Command({ text, label = 'copy the command' }: { text: string; label?: string }) {
  return (
    <Group gap={4} wrap="nowrap" align="flex-start">
      <Code block flex={1} className="command" tabIndex={0}>
        {text}
      </Code>
      <Copy value={text} label={label} />
    </Group>
  )
}
