// The tabs of a session. A module of its own, because the page and its tabs import it, and the router.
import type { Session } from '../../gen/dressage/v1/session_pb'
import type { Live } from '../../live/useSession'

export const TABS = ['overview', 'curves', 'rollouts', 'code', 'judgment', 'lineage', 'conversation', 'artifacts', 'events'] as const
export type Tab = (typeof TABS)[number]
export type TabProps = { name: string; session: Session; live: Live; iteration: number }
