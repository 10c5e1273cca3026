import { href } from '../../display/routing.ts'
import type { Endpoint, Wallet } from '../../gateway/answers.ts'
import type { Session } from '../../gateway/session.ts'
import { type Action, type Done, toggle, versioned } from '../../parts/actions.tsx'
import { endpointFields, serverField } from '../setup/fields.ts'
import { about } from '../setup/resources.tsx'

type Desk = Pick<Session, 'gateway' | 'path'>

/** Waits for the request. If the gateway gives advice on the price, adds it to the message. */
async function sayWithAdvice(request: Promise<unknown>, said: string): Promise<Done> {
  const { advice } = (await request) as { advice?: string | null }
  return { said, ...(advice && { warning: advice }) }
}

/** Registers an endpoint that is paid to one of these wallets. */
export function addEndpoint(wallets: Wallet[], { gateway, path }: Desk): Action {
  return {
    button: 'Add an endpoint',
    title: 'Add an endpoint',
    ...(wallets.length === 0 && {
      text: (
        <p>
          First add the wallet that receives the money:{' '}
          <a href={href('developers', 'wallets')}>register a wallet</a>.
        </p>
      ),
    }),
    fields: [...endpointFields(wallets), serverField()],
    action: 'Add the endpoint',
    send: (body) => sayWithAdvice(gateway.post(`${path}/endpoints`, body), 'The endpoint is registered.'),
  }
}

/** Changes an endpoint, disables it, or enables it again. */
export function endpointActions(endpoint: Endpoint, wallets: Wallet[], { gateway, path }: Desk): Action[] {
  const at = `${path}/endpoints/${endpoint.endpointId}`
  return [
    versioned(gateway, at, endpoint, (now, patch) => ({
      button: 'Edit',
      of: now.url,
      title: 'Change an endpoint',
      fields: endpointFields(wallets, now),
      action: 'Save',
      send: (_, changed) =>
        sayWithAdvice(
          patch(changed),
          'The endpoint is changed. New challenges have the new terms within two seconds.',
        ),
    })),
    versioned(gateway, at, endpoint, ({ url, disabledAt }, patch) =>
      toggle(disabledAt, patch, url, {
        off: ['Disable', 'Disable this endpoint?', 'Disable it', 'The endpoint is disabled.'],
        on: ['Enable', 'Sell this endpoint again?', 'Enable it', 'The endpoint is on sale again.'],
        text: about(
          url,
          disabledAt === null
            ? 'Requests to it are refused from now on. Challenges that buyers already received can be paid for five more minutes. Accepted payments settle as usual.'
            : 'The gateway answers requests to it with the price again.',
        ),
      }),
    ),
  ]
}
