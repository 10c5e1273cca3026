import { useState } from 'preact/hooks'
import { countOf, describeCode } from '../display/format.ts'
import type { RequeuedMany, RequeueResult } from '../gateway/answers.ts'
import { useSession } from '../gateway/session.ts'
import { Dialog } from './Dialog.tsx'
import { Form } from './Form.tsx'

/** The body of the request: payments by their ids, or all failed payments that match a filter. */
type Asked = { paymentIds: string[] } | { filter: object }

/** Maximum number of payments per request. */
const atOnce = 100

/** A button that queues failed payments again, after the user has confirmed, and shows the result for each payment. */
export function RequeueButton(props: {
  label: string
  /** Names the payments in the confirmation. */
  what: string
  asked: Asked
  isDisabled: boolean
  /** Called when the user has seen the result. */
  done: () => void
}) {
  const { label, what, asked, isDisabled, done } = props
  const [isOpen, setIsOpen] = useState(false)
  const [results, setResults] = useState<RequeueResult[]>()
  const { gateway, path } = useSession()
  const close = () => {
    setIsOpen(false)
    setResults(undefined)
    if (results) done()
  }
  const send = async () => {
    const found: RequeueResult[] = []
    for (const part of partsOf(asked)) {
      let cursor: string | null | undefined
      do {
        const answer: RequeuedMany = await gateway.post(`${path}/payments/requeue`, {
          ...part,
          ...(cursor && { cursor }),
        })
        found.push(...answer.results)
        cursor = answer.cursor
      } while (cursor !== null)
    }
    setResults(found)
  }
  return (
    <>
      <button type="button" class="quiet small" disabled={isDisabled} onClick={() => setIsOpen(true)}>
        {label}
      </button>
      {isOpen && (
        <Dialog title={results ? 'Queued again' : 'Queue again?'} close={close}>
          {results ? (
            <Results results={results} close={close} />
          ) : (
            <Form action="Queue again" cancel={close} send={send}>
              <p>
                This queues {what} again. Each gets a full set of retries and settles with one of the next
                batches, if its buyer’s balance covers it.
              </p>
            </Form>
          )}
        </Dialog>
      )}
    </>
  )
}

function partsOf(asked: Asked): Asked[] {
  if ('filter' in asked) return [asked]
  const { paymentIds } = asked
  return Array.from({ length: Math.ceil(paymentIds.length / atOnce) }, (_, part) => ({
    paymentIds: paymentIds.slice(part * atOnce, (part + 1) * atOnce),
  }))
}

function Results({ results, close }: { results: RequeueResult[]; close: () => void }) {
  const refused = results.filter(({ requeued }) => !requeued)
  const reasons = Map.groupBy(refused, ({ code, detail }) => detail ?? describeCode(code ?? ''))
  return (
    <div class="text" role="status">
      <p>
        {countOf(results.length - refused.length, 'payment is', 'payments are')} in the queue again.
        {refused.length > 0 &&
          ` ${countOf(refused.length, 'payment is unchanged', 'payments are unchanged')}:`}
      </p>
      {refused.length > 0 && (
        <ul>
          {[...reasons].map(([reason, own]) => (
            <li key={reason}>
              {countOf(own.length, 'payment')}: {reason}.
            </li>
          ))}
        </ul>
      )}
      <button type="button" onClick={close}>
        Close
      </button>
    </div>
  )
}
