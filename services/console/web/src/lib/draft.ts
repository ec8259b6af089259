// What a person has typed and not yet sent. The tab keeps it: a reload, a new login or a restart of the server does not lose it.
import { useSessionStorage } from '@mantine/hooks'
import { useCallback } from 'react'

const PREFIX = 'dressage-draft/'

/** A draft that an older page or a person's hand left may be anything: what is no JSON is none. */
function read<T>(text: string | undefined): T | undefined {
  if (text === undefined) return undefined
  try {
    return JSON.parse(text) as T
  } catch {
    return undefined
  }
}

/**
 * The draft of this name, or undefined.
 *
 * @returns the draft, how it changes, and how it is dropped: after it was sent, or at a person's wish.
 */
export function useDraft<T>(name: string): [T | undefined, (change: (old: T | undefined) => T) => void, () => void] {
  const [draft, set, drop] = useSessionStorage<T | undefined>({ key: PREFIX + name, getInitialValueInEffect: false, sync: false, deserialize: read })
  const change = useCallback((next: (old: T | undefined) => T) => set((old) => next(old)), [set])
  return [draft, change, drop]
}

/** Drop every draft of this tab, as the next person to log in is to see none. */
export function dropDrafts(): void {
  for (const key of Object.keys(sessionStorage)) if (key.startsWith(PREFIX)) sessionStorage.removeItem(key)
}
