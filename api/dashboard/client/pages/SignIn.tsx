import { useState } from 'preact/hooks'
import { GatewayError } from '../gateway.ts'
import { useTitle } from '../parts/View.tsx'
import { href } from '../routing.ts'

type SignInProps = {
  /** Why the previous session ended. */
  reason?: string | undefined
  open: (key: string) => Promise<void>
}

export function SignInPage({ reason, open }: SignInProps) {
  useTitle('Sign in')
  const [problem, setProblem] = useState(reason)
  const [isOpening, setIsOpening] = useState(false)

  async function submit(event: SubmitEvent) {
    event.preventDefault()
    const input = (event.currentTarget as HTMLFormElement).elements.namedItem('key') as HTMLInputElement
    const key = input.value.trim()
    if (key === '') return setProblem('Paste your API key first.')
    setIsOpening(true)
    try {
      await open(key)
    } catch (error) {
      if (!(error instanceof GatewayError)) throw error
      setProblem(
        error.status === 401
          ? 'This API key is not in force. Check that it was copied whole.'
          : error.message,
      )
      setIsOpening(false)
      input.select()
    }
  }

  return (
    <div class="sign-in">
      <h1>Sign in</h1>
      <p>Revenue, queue and settlements of your APIs, as the chain shows them.</p>
      <form class="panel" onSubmit={submit}>
        <label for="key">API key</label>
        <input
          id="key"
          type="password"
          autocomplete="off"
          spellcheck={false}
          placeholder="tk_…"
          aria-describedby={problem === undefined ? 'key-note' : 'key-problem key-note'}
          aria-invalid={problem !== undefined}
        />
        {problem === undefined ? null : (
          <p id="key-problem" class="problem" role="alert">
            {problem}
          </p>
        )}
        <button type="submit" disabled={isOpening}>
          {isOpening ? 'Signing in…' : 'Sign in'}
        </button>
        <p id="key-note" class="note">
          The key that registration showed once. It stays in this tab and is gone with it.
        </p>
      </form>
      <p class="note">
        No key yet? <a href={href('start')}>Sell your API.</a>
      </p>
      <p class="note">
        Curious first? <a href={href('network')}>See what settles on the network.</a>
      </p>
      <p class="note">
        Only want to know whether a receipt is genuine? <a href={href('receipt')}>Check it without a key.</a>
      </p>
    </div>
  )
}
