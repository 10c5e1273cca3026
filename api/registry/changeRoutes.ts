import { z } from '@hono/zod-openapi'
import { listRegistryChanges } from '@tollkeeper/ledger/registry/registryChanges'
import type { Database } from '@tollkeeper/ledger/store/database'
import { ownersOnly } from '../http/authenticate.ts'
import { bigintField, createCursor } from '../http/cursor.ts'
import { view } from '../http/view.ts'
import * as wire from '../http/wire.ts'

const fields = z.record(z.string(), z.unknown())

export const registryChange = z
  .object({
    changedAt: wire.isoTime,
    by: z.string().openapi({ description: "An API key's id, or `operator`", example: 'operator' }),
    subject: z.string().openapi({ description: 'Id of the provider, wallet, endpoint or key' }),
    before: fields
      .nullable()
      .openapi({ description: 'Previous values of the changed fields; null: the subject is new' }),
    after: fields,
  })
  .openapi('RegistryChange')

const positions = createCursor({ id: bigintField })

export const addRegistryChangeRoute = view('/providers/{id}/changes', {
  ...ownersOnly,
  tags: ['Providers'],
  summary: 'History of registry changes: what changed, when and by whom',
  query: z.object({ limit: wire.limit, cursor: wire.cursor }),
  answer: [
    'The changes, newest first',
    z.object({ changes: z.array(registryChange), cursor: wire.cursorOut }),
  ],
  open:
    ({ sql }: { sql: Database }) =>
    async ({ id: providerId, ...asked }) => {
      const { rows, cursor } = await positions.page(`changes ${providerId}`, asked, ({ after, limit }) =>
        listRegistryChanges(sql, providerId, { position: after && { id: Number(after.id) }, limit }),
      )
      return { changes: rows.map((row) => ({ ...row, by: row.keyId ?? 'operator' })), cursor }
    },
})
