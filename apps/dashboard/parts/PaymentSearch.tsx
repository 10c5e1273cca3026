import { useId, useState } from 'preact/hooks'
import { explain } from '../display/explain.ts'
import { findByText } from '../display/paymentSearch.ts'
import { href } from '../display/routing.ts'
import { GatewayError } from '../gateway/gateway.ts'
import { useSession } from '../gateway/session.ts'

const hint = 'Enter a payment’s id (pay_…), a tab’s id (tab_…), an address or a transaction hash (0x…).'

/** A field that opens the payment or tab with a given id, or the payments of an address or a transaction. */
export function PaymentSearch() {
  const { gateway } = useSession()
  const [text, setText] = useState('')
  const [problem, setProblem] = useState<string>()
  const id = useId()
  const go = async () => {
    const found = findByText(text)
    if (found === undefined) return setProblem(hint)
    if ('link' in found) {
      setText('')
      location.hash = found.link
      return
    }
    try {
      const { paymentId } = await gateway.get<{ paymentId: string }>(`tabs/${found.tabId}`)
      setText('')
      location.hash = href('tabs', paymentId)
    } catch (error) {
      if (!(error instanceof GatewayError)) throw error
      setProblem(error.status === 404 ? 'No tab has this id.' : explain(error).title)
    }
  }
  return (
    <search>
      <form
        class="line filters"
        noValidate
        onSubmit={(event) => {
          event.preventDefault()
          void go()
        }}
      >
        <label class="wide">
          <span class="note">Find a payment</span>
          <input
            type="search"
            value={text}
            placeholder="pay_…, tab_…, 0x…"
            spellcheck={false}
            autocomplete="off"
            aria-invalid={problem !== undefined}
            aria-describedby={problem && id}
            onInput={(event) => {
              setText(event.currentTarget.value)
              setProblem(undefined)
            }}
          />
          {problem !== undefined && (
            <span id={id} class="problem" role="alert">
              {problem}
            </span>
          )}
        </label>
        <button type="submit" class="quiet">
          Find
        </button>
      </form>
    </search>
  )
}
