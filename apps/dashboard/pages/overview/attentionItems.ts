import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { countOf, nameNetwork, shorten, sumUsdc, writeTime, writeUsdc } from '../../display/format.ts'
import { href, hrefWith } from '../../display/routing.ts'
import type { Attention, Payers } from '../../gateway/answers.ts'

/** A matter that requires the provider's attention: an explanation, and a link. */
export type AttentionItem = {
  key: string
  tone: 'bad' | 'busy'
  text: string
  /** Link to the page where the provider can act. */
  link: string
  action: string
}

/** A gas allowance is low if less than a fifth of it is left. */
const lowPart = 5n

/** Returns the matters that require attention, the most urgent first. */
export function attentionItems(attention: Attention): AttentionItem[] {
  const { suspendedAt, disabledAt, upstreamSecretExpiresAt } = attention
  const items: (AttentionItem | false)[] = [
    suspendedAt !== null && {
      key: 'suspended',
      tone: 'bad',
      text: 'The operator suspended you, so nothing is sold. Contact the operator of this gateway. Payments that were accepted settle as usual.',
      link: href('developers', 'provider'),
      action: 'Provider',
    },
    disabledAt !== null && {
      key: 'disabled',
      tone: 'busy',
      text: 'You disabled all your endpoints, so nothing is sold. Enable them to sell again.',
      link: href('developers', 'provider'),
      action: 'Enable them',
    },
    ...attention.withheld.map(
      ({ walletId, wallet, network, waiting_usdc }): AttentionItem => ({
        key: walletId,
        tone: 'bad',
        text: `USDC has blacklisted ${shorten(wallet)} on ${nameNetwork(network)}: ${writeUsdc(parseUsdc(waiting_usdc))} USDC can’t be paid out to it. Register another wallet for future sales.`,
        link: href('payouts', 'queue'),
        action: 'See the waiting amount',
      }),
    ),
    failingItem(
      attention.failed,
      'failed',
      'won’t settle without your action',
      'won’t settle without your action',
    ),
    failingItem(
      attention.retrying,
      'retrying',
      'failed to settle and is retried',
      'failed to settle and are retried',
    ),
    ...attention.webhooks.flatMap(webhookItems),
    ...attention.endpoints.map(
      ({ endpointId, method, url, finding, advice, isProven }): AttentionItem => ({
        key: endpointId,
        tone: 'busy',
        text: `${method === '*' ? 'Any method' : method} ${url} ${isProven ? 'will be listed last in the catalog within three days' : 'is listed last in the catalog'}. ${finding}${advice === null ? '' : ` ${advice}`}`,
        link: href('endpoints', endpointId),
        action: 'Check again',
      }),
    ),
    ...attention.gas.map(
      ({ money, limit_usd, left_usd, isShared }): AttentionItem | false =>
        parseUsdc(left_usd) * lowPart < parseUsdc(limit_usd) && {
          key: `gas ${money}`,
          tone: 'busy',
          text: `The operator’s gas allowance for refunds${money === 'test' ? ' on test networks' : ''} has ${writeUsdc(parseUsdc(left_usd))} of ${writeUsdc(parseUsdc(limit_usd))} USD left today${isShared ? ', shared by all providers' : ''}. It is renewed at midnight UTC.`,
          link: href('payments'),
          action: 'Payments',
        },
    ),
    upstreamSecretExpiresAt !== null && {
      key: 'upstream',
      tone: 'busy',
      text: `Requests to your server also carry the previous secret until ${writeTime(upstreamSecretExpiresAt)}. Your server must check the new secret before then.`,
      link: href('developers', 'upstream'),
      action: 'Your server',
    },
  ]
  return items.filter((item): item is AttentionItem => item !== false)
}

function failingItem(
  { payments, isMore, net_usdc }: Attention['failed'],
  key: 'failed' | 'retrying',
  one: string,
  many: string,
): AttentionItem | false {
  if (payments === 0) return false
  const count = isMore ? `More than ${countOf(payments, 'payment')}` : countOf(payments, 'payment')
  const tail = payments === 1 && !isMore ? one : many
  const amount = `${writeUsdc(parseUsdc(net_usdc))} USDC`
  return {
    key,
    tone: key === 'failed' ? 'bad' : 'busy',
    text: `${count} ${tail}: ${isMore ? 'at least ' : ''}${amount}.`,
    link: href('payments', 'failures'),
    action: 'Failures',
  }
}

function webhookItems(webhook: Attention['webhooks'][number]): AttentionItem[] {
  const { webhookId, url, disabledAt, undelivered, ofLast, failure, previousSecretExpiresAt } = webhook
  const link = href('developers', 'webhooks', webhookId)
  const items: AttentionItem[] = []
  if (disabledAt !== null) {
    const text = `The webhook ${url} is disabled, because its receiver answered 410. Rotate its secret to enable it again.`
    items.push({ key: webhookId, tone: 'bad', text, link, action: 'Webhook' })
  } else if (undelivered > 0) {
    const why = failure === null ? '' : ` (${failure.replaceAll('_', ' ')})`
    const text = `${undelivered} of the last ${countOf(ofLast, 'message')} to ${url} did not arrive${why}. Check the receiver.`
    items.push({ key: webhookId, tone: 'bad', text, link, action: 'Webhook' })
  }
  if (previousSecretExpiresAt !== null) {
    const text = `Messages to ${url} are also signed with the previous secret until ${writeTime(previousSecretExpiresAt)}. Your receiver must use the new secret before then.`
    items.push({ key: `${webhookId} secret`, tone: 'busy', text, link, action: 'Webhook' })
  }
  return items
}

/** Returns the item about the buyers who owe the provider, if there are any. */
export function owingItems({
  payers,
  cursor,
  testnet,
}: Pick<Payers, 'payers' | 'cursor' | 'testnet'>): AttentionItem[] {
  if (payers.length === 0) return []
  const isMore = cursor !== null
  const owed = writeUsdc(sumUsdc(payers, ({ owed_usdc }) => owed_usdc))
  const verb = payers.length === 1 && !isMore ? 'owes' : 'owe'
  return [
    {
      key: 'owing',
      tone: 'busy',
      text: `${isMore ? 'More than ' : ''}${countOf(payers.length, 'buyer')} ${verb} you ${isMore ? 'at least ' : ''}${owed} USDC for payments that failed because of the buyer.`,
      link: hrefWith(['buyers'], { state: 'owing', period: 'all', testnet: String(testnet) }),
      action: 'Buyers',
    },
  ]
}
