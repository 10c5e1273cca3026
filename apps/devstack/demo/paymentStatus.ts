const pollMs = 100

/** How long we wait for a payment. */
export const patienceMs = 150_000

/** Resolves when the gateway knows a payment that has this status. */
export async function untilStatus(
  gatewayUrl: string,
  paymentId: string,
  isReached: (status: string) => boolean,
): Promise<void> {
  for (const end = Date.now() + patienceMs; Date.now() < end; ) {
    const answer = await fetch(new URL(`/payments/${paymentId}`, gatewayUrl))
    const { payment_status: status = '' } = (await answer.json()) as { payment_status?: string }
    if (answer.ok && isReached(status)) return
    await new Promise((resolve) => setTimeout(resolve, pollMs))
  }
  throw new Error(`${paymentId} didn't come further in ${patienceMs / 1000} s`)
}
