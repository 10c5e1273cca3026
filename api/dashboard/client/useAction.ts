import { useState } from 'preact/hooks'
import { explainRefusal } from './explain.ts'
import { GatewayError } from './gateway.ts'

export type Action = { run: () => void; isBusy: boolean; problem: string | undefined }

/** What a button asks the gateway to do, where there is no form around it. */
export function useAction(ask: () => Promise<void>): Action {
  const [state, setState] = useState<{ isBusy: boolean; problem?: string }>({ isBusy: false })
  async function run() {
    setState({ isBusy: true })
    try {
      await ask()
      setState({ isBusy: false })
    } catch (error) {
      if (!(error instanceof GatewayError)) throw error
      const { title, text } = explainRefusal(error)
      setState({ isBusy: false, problem: `${title}. ${text}`.trim() })
    }
  }
  return { run: () => void run(), isBusy: state.isBusy, problem: state.problem }
}
