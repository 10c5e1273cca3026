import { useState } from 'preact/hooks'
import { explainRefusal } from '../display/explain.ts'
import { GatewayError } from '../gateway/gateway.ts'
import { useSession } from '../gateway/session.ts'

/** A button outside of a form that sends a request to the gateway and shows the result. */
export function ActionButton(props: {
  label: string
  /** Sends the request. May return a message to show afterwards. */
  ask: () => Promise<unknown>
  /** The message to show afterwards if `ask` returns none. */
  said?: string
  class?: string
  isDisabled?: boolean
}) {
  const { label, ask, said, class: name, isDisabled = false } = props
  const [state, setState] = useState<'idle' | 'busy' | { done: string } | { problem: string }>('idle')
  async function run() {
    setState('busy')
    try {
      const answer = await ask()
      setState({ done: typeof answer === 'string' ? answer : (said ?? '') })
    } catch (error) {
      if (!(error instanceof GatewayError)) throw error
      const { title, text } = explainRefusal(error)
      setState({ problem: `${title}. ${text}`.trim() })
    }
  }
  const isDone = typeof state === 'object' && 'done' in state
  return (
    <>
      {typeof state === 'object' && 'problem' in state && (
        <span class="problem" role="alert">
          {state.problem}
        </span>
      )}
      <span role="status" class={isDone ? undefined : 'unseen'}>
        {isDone && state.done}
      </span>
      <button type="button" class={name} disabled={state === 'busy' || isDisabled} onClick={() => void run()}>
        {label}
      </button>
    </>
  )
}

/** Downloads a file that the gateway writes for the provider. */
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
