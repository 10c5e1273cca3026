import { useState } from 'preact/hooks'
import { explainRefusal } from '../display/explain.ts'
import { GatewayError } from '../gateway/gateway.ts'
import { useSession } from '../gateway/session.ts'

/** A button without a form that sends a request to the gateway, and shows the result. */
export function ActionButton(props: {
  label: string
  ask: () => Promise<void>
  /** The message once it is done. */
  said?: string
  class?: string
  isDisabled?: boolean
}) {
  const { label, ask, said, class: name, isDisabled = false } = props
  const [state, setState] = useState<'idle' | 'busy' | 'done' | { problem: string }>('idle')
  async function run() {
    setState('busy')
    try {
      await ask()
      setState('done')
    } catch (error) {
      if (!(error instanceof GatewayError)) throw error
      const { title, text } = explainRefusal(error)
      setState({ problem: `${title}. ${text}`.trim() })
    }
  }
  return (
    <>
      {typeof state === 'object' && (
        <span class="problem" role="alert">
          {state.problem}
        </span>
      )}
      <span role="status" class={state === 'done' ? undefined : 'unseen'}>
        {state === 'done' && said}
      </span>
      <button type="button" class={name} disabled={state === 'busy' || isDisabled} onClick={() => void run()}>
        {label}
      </button>
    </>
  )
}

/** Has the gateway write a file of the provider's, and saves it in the browser. */
export function Download({ label, path, name }: { label: string; path: string; name: string }) {
  const { gateway, path: own } = useSession()
  const ask = async () => {
    const link = document.createElement('a')
    link.href = URL.createObjectURL(await gateway.download(`${own}/${path}`))
    link.download = name
    link.click()
    URL.revokeObjectURL(link.href)
  }
  return <ActionButton label={label} class="quiet" ask={ask} />
}
