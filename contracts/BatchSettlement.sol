// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IERC3009} from "@openzeppelin/contracts/interfaces/draft-IERC3009.sol";
import {Reason} from "./Reason.sol";
import {IBatchSettlement} from "./interfaces/IBatchSettlement.sol";
import {IERC3009Bytes} from "./interfaces/IERC3009Bytes.sol";
import {ISplitterFactory} from "./interfaces/ISplitterFactory.sol";

/// @title BatchSettlement
/// @notice See IBatchSettlement, which documents every function, event and error.
contract BatchSettlement is IBatchSettlement {
    /// @inheritdoc IBatchSettlement
    uint256 public constant MIN_CALL_GAS = 120_000;

    /// Left beside a call's own gas: for the check of its outcome, its event, and the end of the batch. So an item that
    /// burns its whole limit can't revert the others. OUTCOME_GAS logs and returns one byte of `outcomes`.
    uint256 private constant TAIL_GAS = 60_000;
    uint256 private constant OUTCOME_GAS = 16;
    /// Left beside the sweep's own gas, so that what settled is returned whatever the sweep burns.
    uint256 private constant RETURN_GAS = 5_000;

    uint256 private constant NOT_TRIED = 0;
    uint256 private constant SETTLED = 1;
    uint256 private constant USED = 2;
    uint256 private constant FAILED = 3;
    uint256 private constant SKIPPED = 4;

    // Offsets that the assembly uses; Layout.t.sol holds them against the compiler's.
    uint256 internal constant WORD = 0x20;
    /// In `Run`. A selector stands at the end of its word.
    uint256 internal constant RUN_TOKEN = 0x00;
    uint256 internal constant RUN_CALL_GAS = 0x20;
    uint256 internal constant RUN_FROM = 0x60;
    uint256 internal constant RUN_NONCE = 0x100;
    uint256 internal constant RUN_TRANSFER = 0x5c;
    uint256 internal constant SELECTOR_IN_WORD = 0x1c;
    /// Call data of the token: a selector, and nine words or two.
    uint256 internal constant TRANSFER_SIZE = 0x124;
    uint256 internal constant STATE_SIZE = 0x44;
    /// In the calldata of a `Payment`.
    uint256 internal constant PAYMENT_NONCE = 0x40;
    uint256 internal constant PAYMENT_SIZE = 0x100;
    /// In the calldata of an `Authorization`.
    uint256 internal constant AUTHORIZATION_SIZE = 0xa0;

    /// What `settle` carries from one authorization to the next. `selector` to `s` are the token call's data as they stand
    /// in memory, so that each call writes only the words in which it differs from the one before.
    struct Run {
        address token;
        uint256 callGas;
        uint256 selector;
        uint256 from;
        uint256 to;
        uint256 value;
        uint256 validAfter;
        uint256 validBefore;
        bytes32 nonce;
        uint256 v;
        bytes32 r;
        uint256 s;
        uint256 neededGas;
        address feeRecipient;
        /// The authorization last looked at was used, failed or was skipped: look at the next one before trying it.
        bool probing;
        /// Payer of the authorization that failed last: while probing, his are skipped. At first no address.
        uint256 refused;
        /// What the token answered to the call that failed last.
        bytes reason;
    }

    /// @inheritdoc IBatchSettlement
    function settle(
        Batch calldata batch,
        address[] calldata payees,
        Payment[] calldata payments,
        bytes[] calldata signatures
    ) external returns (bytes memory outcomes) {
        Run memory run = _start(batch, payments.length);
        outcomes = new bytes(payments.length);
        uint256 authorizations;
        uint256 providerTotal;
        uint256 feeTotal;
        Payment calldata payment;
        assembly ("memory-safe") {
            payment := payments.offset
        }

        // Nothing here can overflow: sums of at most 2^32 values below 2^128.
        unchecked {
            for (uint256 i; i < payments.length; ++i) {
                uint256 amount = payment.values >> 128;
                uint256 fee = uint128(payment.values);
                _setHead(run, payment.head, payees);
                (run.value, run.nonce) = (amount, payment.nonce);
                uint256 outcome = _attempt(run, payment.r, payment.vs, signatures);
                uint256 feeOutcome;
                if (outcome == SETTLED) {
                    ++authorizations;
                    providerTotal += amount;
                } else if (outcome == NOT_TRIED) {
                    break;
                } else if (outcome == FAILED) {
                    emit AuthorizationFailed(batch.batchId, _from(run), run.nonce, i, run.reason);
                }

                // Skipped, where the provider's failed or was: it is of the same payer.
                if (fee != 0) {
                    _setFee(run, payment, fee);
                    feeOutcome = _attempt(run, payment.feeR, payment.feeVs, signatures);
                    if (feeOutcome == SETTLED) {
                        ++authorizations;
                        feeTotal += fee;
                    } else if (feeOutcome == FAILED) {
                        emit AuthorizationFailed(batch.batchId, _from(run), run.nonce, i, run.reason);
                    }
                }

                assembly ("memory-safe") {
                    mstore8(add(add(outcomes, WORD), i), or(shl(4, outcome), feeOutcome))
                    payment := add(payment, PAYMENT_SIZE)
                }
            }
        }

        _finish(batch, authorizations, providerTotal, feeTotal, outcomes);
    }

    /// @inheritdoc IBatchSettlement
    function settleAuthorizations(
        Batch calldata batch,
        address[] calldata payees,
        Authorization[] calldata authorizations,
        bytes[] calldata signatures,
        Sweep calldata sweep
    ) external returns (bytes memory outcomes) {
        bytes memory sweepData;
        uint256 sweepGas;
        if (sweep.splits.length != 0) {
            // Prepared first, so that what it costs is known before anything settles.
            sweepData = abi.encodeCall(
                ISplitterFactory.sweep, (batch.token, batch.feeRecipient, sweep.splits)
            );
            // EIP-150, as for each authorization.
            sweepGas = uint256(sweep.gasLimit) * 64 / 63 + RETURN_GAS + OUTCOME_GAS * authorizations.length;
        }
        Run memory run = _start(batch, authorizations.length);
        run.neededGas += sweepGas;
        outcomes = new bytes(authorizations.length);
        uint256 settled;
        uint256 total;
        Authorization calldata authorization;
        assembly ("memory-safe") {
            authorization := authorizations.offset
        }

        // The sum can overflow only with a token that moves more than it has; what is logged of that token proves nothing.
        unchecked {
            for (uint256 i; i < authorizations.length; ++i) {
                uint256 value = authorization.value;
                _setHead(run, authorization.head, payees);
                (run.value, run.nonce) = (value, authorization.nonce);
                uint256 outcome = _attempt(run, authorization.r, authorization.vs, signatures);
                if (outcome == SETTLED) {
                    ++settled;
                    total += value;
                } else if (outcome == NOT_TRIED) {
                    break;
                } else if (outcome == FAILED) {
                    emit AuthorizationFailed(batch.batchId, _from(run), run.nonce, i, run.reason);
                }

                assembly ("memory-safe") {
                    mstore8(add(add(outcomes, WORD), i), shl(4, outcome))
                    authorization := add(authorization, AUTHORIZATION_SIZE)
                }
            }
        }

        _finish(batch, settled, total, 0, outcomes);
        // After the event, so that nothing a sweep does can pass for a part of the batch. Whatever comes of it is left.
        if (sweepGas != 0 && gasleft() >= sweepGas) {
            (address factory, uint256 gasLimit) = (sweep.factory, sweep.gasLimit);
            assembly ("memory-safe") {
                pop(call(gasLimit, factory, 0, add(sweepData, WORD), mload(sweepData), 0, 0))
            }
        }
    }

    /// Tells what became of the batch, or undoes it if nothing was settled.
    function _finish(
        Batch calldata batch,
        uint256 authorizations,
        uint256 providerTotal,
        uint256 feeTotal,
        bytes memory outcomes
    ) private {
        if (authorizations == 0) revert NothingSettled(outcomes);
        emit BatchSettled(
            batch.batchId, msg.sender, batch.token, batch.trigger, authorizations, providerTotal, feeTotal, outcomes
        );
    }

    function _start(Batch calldata batch, uint256 count) private view returns (Run memory run) {
        // A call to an address without code succeeds.
        if (batch.token.code.length == 0) revert InvalidToken(batch.token);
        run.token = batch.token;
        run.feeRecipient = batch.feeRecipient;
        run.callGas = batch.callGasLimit < MIN_CALL_GAS ? MIN_CALL_GAS : batch.callGasLimit;
        // EIP-150: a call gets at most 63/64 of what is left.
        run.neededGas = run.callGas * 64 / 63 + TAIL_GAS + OUTCOME_GAS * count;
        run.selector = uint32(IERC3009.transferWithAuthorization.selector);
        run.probing = true;
        run.refused = type(uint256).max;
    }

    /// Puts into `run` a payer, a recipient and a window; the fee of a payment shares all but the recipient.
    function _setHead(Run memory run, uint256 head, address[] calldata payees) private pure {
        uint256 payeeIndex = uint16(head >> 80);
        if (payeeIndex >= payees.length) revert InvalidPayee(payeeIndex);
        uint256 to;
        assembly ("memory-safe") {
            to := calldataload(add(payees.offset, shl(5, payeeIndex)))
        }
        run.from = head >> 96;
        run.to = uint160(to);
        run.validAfter = uint40(head >> 40);
        run.validBefore = uint40(head);
    }

    function _setFee(Run memory run, Payment calldata payment, uint256 fee) private pure {
        bytes32 nonce = payment.feeNonce;
        if (nonce == 0) {
            assembly ("memory-safe") {
                mstore(0, calldataload(add(payment, PAYMENT_NONCE)))
                nonce := keccak256(0, WORD)
            }
        }
        run.to = uint160(run.feeRecipient);
        run.value = fee;
        run.nonce = nonce;
    }

    /// Tries the authorization that stands in `run`.
    function _attempt(Run memory run, bytes32 r, bytes32 vs, bytes[] calldata signatures)
        private
        returns (uint256 outcome)
    {
        if (run.probing) {
            if (gasleft() < run.neededGas) return NOT_TRIED;
            if (run.from == run.refused) return SKIPPED;
            if (_isUsed(run)) return USED;
            run.probing = false;
        }
        bool success;
        uint256 s = uint256(vs) << 1 >> 1;
        if (s != 0) {
            unchecked {
                run.v = 27 + (uint256(vs) >> 255);
            }
            run.r = r;
            run.s = s;
            if (gasleft() < run.neededGas) return NOT_TRIED;
            assembly ("memory-safe") {
                success := call(
                    mload(add(run, RUN_CALL_GAS)), mload(add(run, RUN_TOKEN)), 0, add(run, RUN_TRANSFER), TRANSFER_SIZE, 0, 0
                )
            }
        } else {
            if (uint256(r) >= signatures.length) revert InvalidSignatureIndex(uint256(r));
            bytes memory data = _encode(run, signatures[uint256(r)]);
            if (gasleft() < run.neededGas) return NOT_TRIED;
            assembly ("memory-safe") {
                success := call(
                    mload(add(run, RUN_CALL_GAS)), mload(add(run, RUN_TOKEN)), 0, add(data, WORD), mload(data), 0, 0
                )
            }
        }
        if (success) return SETTLED;
        run.reason = Reason.read();
        run.probing = true;
        if (_isUsed(run)) return USED;
        run.refused = run.from;
        return FAILED;
    }

    function _encode(Run memory run, bytes calldata signature) private pure returns (bytes memory) {
        return abi.encodeWithSelector(
            IERC3009Bytes.transferWithAuthorization.selector,
            run.from,
            run.to,
            run.value,
            run.validAfter,
            run.validBefore,
            run.nonce,
            signature
        );
    }

    /// Whether the token says that this nonce of this buyer is used or cancelled.
    function _isUsed(Run memory run) private view returns (bool used) {
        uint256 selector = uint32(IERC3009.authorizationState.selector);
        assembly ("memory-safe") {
            let data := mload(0x40)
            mstore(data, selector)
            mstore(add(data, 0x20), mload(add(run, RUN_FROM)))
            mstore(add(data, 0x40), mload(add(run, RUN_NONCE)))
            let success :=
                staticcall(gas(), mload(add(run, RUN_TOKEN)), add(data, SELECTOR_IN_WORD), STATE_SIZE, 0, WORD)
            used := and(and(success, gt(returndatasize(), 0x1f)), eq(mload(0), 1))
        }
    }

    function _from(Run memory run) private pure returns (address) {
        return address(uint160(run.from));
    }
}
