import { z } from '@hono/zod-openapi'
import { changeRegistry } from '@tollkeeper/ledger/registry/registryChanges'
import type { Database } from '@tollkeeper/ledger/store/database'
import { isMailAddress, mailboxOf } from '@tollkeeper/runtime/mailAddress'
import type { App } from '../http/app.ts'
import { changerOf, ownersOnly } from '../http/authenticate.ts'
import { jsonAnswer } from '../http/problems.ts'
import { Refusal } from '../http/refusal.ts'
import { route } from '../http/route.ts'
import type { GatewaySettings } from '../http/settings.ts'
import * as wire from '../http/wire.ts'
import { composeConfirmation } from '../notifications/compose.ts'
import { isContactCode, issueContactCode } from '../notifications/contactCode.ts'
import type { Mailer } from '../notifications/mailer.ts'
import { confirmContact } from '../notifications/notices.ts'
import { provider } from './providerRoutes.ts'
import { findProvider, type Provider } from './providers.ts'
import { countQuota, dropOldQuotas } from './quota.ts'

const tags = ['Providers']
const dayMs = 24 * 60 * 60_000
/** Maximum number of confirmations mailed in a day: per provider, per mailbox over all providers, and in total. */
const confirmationsADay = { provider: 3, mailbox: 3, total: 500 }

const sendCode = route('post', '/providers/{id}/contact/code', {
  ...ownersOnly,
  tags,
  summary: 'Mail a confirmation code to the contact',
  description:
    'The gateway sends no other mail to the contact until it is confirmed with this code. Needs a gateway with `SMTP_URL`.',
  refuses: [404, 422, 429],
  responses: { 204: { description: 'The code was mailed' } },
})

const confirmation = z.strictObject({ code: wire.text(100) }).openapi('ContactConfirmation')

const confirm = route('post', '/providers/{id}/contact/confirmation', {
  ...ownersOnly,
  tags,
  summary: 'Confirm the contact with the code that was mailed to it',
  body: confirmation,
  refuses: [404],
  responses: { 201: jsonAnswer('The provider', provider) },
})

export type ContactRouteOptions = {
  sql: Database
  /** Null: this gateway sends no mail. */
  mailer: Mailer | null
  settings: Pick<GatewaySettings, 'issuer' | 'macaroonSecrets'>
  now: () => number
}

export function addContactRoutes(app: App, { sql, mailer, settings, now }: ContactRouteOptions): void {
  const { issuer, macaroonSecrets } = settings

  app.openapi(sendCode, async (c) => {
    if (mailer === null) throw new Refusal('not_found', 'This gateway sends no mail')
    const providerId = c.req.valid('param').id
    const address = addressOf(await findProvider(sql, providerId))
    await sql.begin(async (tx) => {
      // The provider is counted first, so that a provider over its own limit doesn't use up the mailbox's limit and the total limit.
      const { provider: own, mailbox, total } = confirmationsADay
      const count = (counted: string, limit: number, what: string) =>
        countQuota(tx, { counted: `contact ${counted}`, limit, windowMs: dayMs, what }, now())
      await count(providerId, own, 'codes a day')
      await count(mailboxOf(address), mailbox, 'codes per day to one address')
      await count('', total, 'codes per day in all')
      await dropOldQuotas(tx, now())
    })
    const code = issueContactCode({ providerId, address }, macaroonSecrets, now())
    await mailer.send(composeConfirmation({ providerId, address, code }, issuer)).catch((cause: unknown) => {
      throw new Refusal(
        'dependency_unavailable',
        'The mail server did not accept the message: try again later',
        { cause },
      )
    })
    return c.body(null, 204)
  })

  app.openapi(confirm, async (c) => {
    const providerId = c.req.valid('param').id
    const { code } = c.req.valid('json')
    const changed = await changeRegistry(sql, changerOf(c), async (tx, record) => {
      const before = await findProvider(tx, providerId)
      const address = addressOf(before)
      if (!isContactCode(code, { providerId, address }, macaroonSecrets, now())) {
        throw new Refusal(
          'invalid_field',
          'This code is for another contact, or it has expired: request a new one',
          {
            details: { field: 'code' },
          },
        )
      }
      await confirmContact(tx, { providerId, address, now: new Date(now()) })
      const after = (await findProvider(tx, providerId)) as Provider
      await record(providerId, before as Provider, after)
      return after
    })
    if (changed === undefined) throw new Refusal('unknown_provider')
    return c.json(changed, 201)
  })
}

/** @throws {Refusal} if the provider's contact isn't an email address. */
function addressOf(found: Provider | undefined): string {
  if (found === undefined) throw new Refusal('unknown_provider')
  if (found.contact !== null && isMailAddress(found.contact)) return found.contact
  throw new Refusal('invalid_field', 'The contact is not an email address', { details: { field: 'contact' } })
}
