// Clients of the public API, and how its errors read.
import { Code, ConnectError, createClient } from '@connectrpc/connect'
import { createConnectTransport } from '@connectrpc/connect-web'

import { ArtifactService } from '../gen/dressage/v1/artifact_service_pb'
import { BenchmarkService } from '../gen/dressage/v1/benchmark_service_pb'
import { EnvironmentService } from '../gen/dressage/v1/environment_service_pb'
import { IntentService } from '../gen/dressage/v1/intent_service_pb'
import { SessionService } from '../gen/dressage/v1/session_service_pb'
import { BadRequestSchema, ErrorInfoSchema } from '../gen/google/rpc/error_details_pb'

export const transport = createConnectTransport({
  baseUrl: globalThis.location.origin,
  useBinaryFormat: true,
  defaultTimeoutMs: 60_000,
})

export const sessions = createClient(SessionService, transport)
export const benchmarks = createClient(BenchmarkService, transport)
export const environments = createClient(EnvironmentService, transport)
export const intents = createClient(IntentService, transport)
export const artifacts = createClient(ArtifactService, transport)

/** Address of an artifact by GET; `download` saves it instead of showing it. */
export function artifactUrl(key: string, download = false): string {
  return `/artifacts/${key.split('/').map(encodeURIComponent).join('/')}${download ? '?download' : ''}`
}

/** The error's own message, without the code in front. */
export function errorText(error: unknown): string {
  const connect = ConnectError.from(error)
  if (connect.code === Code.Unavailable) return 'The server does not answer. The page tries again.'
  return connect.rawMessage || 'unknown error'
}

/** The invalid fields of a request by name. */
export function fieldErrors(error: unknown): Record<string, string> {
  const fields: Record<string, string> = {}
  for (const bad of ConnectError.from(error).findDetails(BadRequestSchema)) {
    for (const violation of bad.fieldViolations) fields[violation.field] = violation.description
  }
  return fields
}

/** The stable reason of an error, such as `NOT_AWAITING_APPROVAL`. */
export function errorReason(error: unknown): string {
  return ConnectError.from(error).findDetails(ErrorInfoSchema)[0]?.reason ?? ''
}

export function isUnauthenticated(error: unknown): boolean {
  return error instanceof ConnectError && error.code === Code.Unauthenticated
}

export function isNotFound(error: unknown): boolean {
  return error instanceof ConnectError && (error.code === Code.NotFound || error.code === Code.InvalidArgument)
}
