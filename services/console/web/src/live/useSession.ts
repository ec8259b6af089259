// The live session of a page: subscribes once for all components and redraws at most once for each batch of events.
import { fromBinary } from '@bufbuild/protobuf'
import { useQueryClient } from '@tanstack/react-query'
import { useEffect, useSyncExternalStore } from 'react'

import { EventSchema } from '../gen/dressage/v1/event_pb'
import { watchConnection } from './connection'
import type { Status } from './hub'
import { SessionLive } from './model'

export type Live = { session: SessionLive; status: Status; version: number }

type Store = { live: Live; listeners: Set<() => void>; users: number; stop: (() => void) | null }

const stores = new Map<string, Store>()
const STRUCTURAL = new Set(['phaseChanged', 'scored', 'stateChanged', 'approvalRequested', 'approvalGranted', 'noteAdded', 'judged', 'artifactWritten', 'assignmentChanged'])

function storeOf(name: string): Store {
  let store = stores.get(name)
  if (store === undefined) {
    store = { live: { session: new SessionLive(), status: 'connecting', version: 0 }, listeners: new Set(), users: 0, stop: null }
    stores.set(name, store)
  }
  return store
}

export function useLiveSession(name: string): Live {
  const client = useQueryClient()
  const store = storeOf(name)
  useEffect(() => {
    stores.set(name, store)
    store.users += 1
    let cancelled = false
    if (store.users === 1) {
      void watchConnection().then((connection) => {
        if (cancelled) return
        store.stop = connection.subscribe(name, ({ events, status }) => {
          const { session } = store.live
          let structural = false
          for (const bytes of events) {
            const event = fromBinary(EventSchema, bytes)
            structural ||= STRUCTURAL.has(event.payload.case ?? '')
            session.add(event)
          }
          store.live = { session, status, version: store.live.version + 1 }
          for (const listener of store.listeners) listener()
          if (structural) void client.invalidateQueries({ queryKey: ['session', name] })
        })
      })
    }
    return () => {
      cancelled = true
      store.users -= 1
      if (store.users === 0) {
        store.stop?.()
        stores.delete(name)
      }
    }
  }, [client, name, store])
  return useSyncExternalStore(
    (listener) => {
      store.listeners.add(listener)
      return () => store.listeners.delete(listener)
    },
    () => store.live,
  )
}
