// A dialogue that asks before something is done that matters.
import { Button, Group, Modal, Stack, Text } from '@mantine/core'
import { useSyncExternalStore } from 'react'

/** `onConfirm` shows its own error. */
type Question = { title: string; text: string; action: string; onConfirm: () => Promise<unknown> }

let question: Question | null = null
const listeners = new Set<() => void>()

function set(next: Question | null): void {
  question = next
  for (const listener of listeners) listener()
}

export const modals = { confirm: (next: Question) => set(next) }

export function Confirm() {
  const current = useSyncExternalStore(
    (listener) => {
      listeners.add(listener)
      return () => listeners.delete(listener)
    },
    () => question,
  )
  return (
    <Modal opened={current !== null} onClose={() => set(null)} title={current?.title} centered>
      <Stack>
        <Text size="sm">{current?.text}</Text>
        <Group justify="flex-end">
          <Button variant="default" onClick={() => set(null)}>
            Keep
          </Button>
          <Button
            color="red"
            data-autofocus
            onClick={() => {
              current?.onConfirm().catch(() => null)
              set(null)
            }}
          >
            {current?.action}
          </Button>
        </Group>
      </Stack>
    </Modal>
  )
}
