// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IBatchSettlement} from "../interfaces/IBatchSettlement.sol";
import {SettlementTest} from "./support/SettlementTest.sol";

/// @notice Gas of a batch, with every slot cold as at the start of a transaction. The numbers are committed in
/// snapshots/ and checked in CI. They are the gas of the call alone: a transaction adds 21,000 and its calldata.
contract GasTest is SettlementTest {
    /// Gas limit of a transaction, EIP-7825.
    uint256 private constant TRANSACTION_GAS_CAP = 1 << 24;

    function setUp() public override {
        super.setUp();
        for (uint256 i; i < 200; ++i) _fund(_terms(i));
    }

    function _payments(uint256 count, bool oneBuyer) private view returns (IBatchSettlement.Payment[] memory payments) {
        payments = new IBatchSettlement.Payment[](count);
        for (uint256 i; i < count; ++i) {
            Terms memory terms = _terms(i);
            if (oneBuyer) (terms.key, terms.from) = (_key(0), _buyer(0));
            payments[i] = _pack(terms);
        }
    }

    function _coolAll() private {
        vm.cool(address(usdc));
        for (uint256 i; i < 200; ++i) vm.cool(_buyer(i));
    }

    function _intrinsicGas(bytes memory data) private pure returns (uint256 gas) {
        gas = 21_000;
        for (uint256 i; i < data.length; ++i) gas += data[i] == 0 ? 4 : 16;
    }

    /// Sends the batch with the gas that a transaction at the cap has left after the base cost and calldata.
    function _measure(IBatchSettlement.Payment[] memory payments, string memory name) private returns (bytes memory) {
        bytes memory data = abi.encodeCall(settlement.settle, (_batch(), payees, payments, new bytes[](0)));
        uint256 limit = TRANSACTION_GAS_CAP - _intrinsicGas(data);
        _coolAll();
        (bool success, bytes memory answer) = address(settlement).call{gas: limit}(data);
        if (bytes(name).length > 0) vm.snapshotGasLastCall("settle", name);
        vm.assertTrue(success, "settle");
        return abi.decode(answer, (bytes));
    }

    function test_gas_differentBuyers() public {
        vm.assertEq(_measure(_payments(100, false), "100 payments, different buyers"), _repeat(0x11, 100), "outcomes");
    }

    function test_gas_oneBuyer() public {
        usdc.mint(_buyer(0), 100 * 50_000);
        vm.assertEq(_measure(_payments(100, true), "100 payments, one buyer"), _repeat(0x11, 100), "outcomes");
    }

    function test_gas_onePayment() public {
        vm.assertEq(_measure(_payments(1, false), "1 payment"), hex"11", "outcomes");
    }

    function test_gas_lostRace() public {
        IBatchSettlement.Payment[] memory payments = _payments(100, false);
        _settle(payments);
        bytes memory data = abi.encodeCall(settlement.settle, (_batch(), payees, payments, new bytes[](0)));
        _coolAll();
        uint256 gasBefore = gasleft();
        (bool success,) = address(settlement).call(data);
        uint256 gasUsed = gasBefore - gasleft();
        vm.assertTrue(!success, "a lost race reverts");
        vm.snapshotValue("settle", "lost race of 100, with base cost and calldata", gasUsed + _intrinsicGas(data));
        vm.assertLe(gasUsed + _intrinsicGas(data), 1_250_000, "the gas of a lost race");
    }

    function test_gas_150NewProviders() public {
        delete payees;
        IBatchSettlement.Payment[] memory payments = new IBatchSettlement.Payment[](150);
        for (uint256 i; i < 150; ++i) {
            payees.push(address(uint160(0xCAFE0000 + i)));
            Terms memory terms = _terms(i);
            terms.payeeIndex = i;
            payments[i] = _pack(terms);
        }
        vm.assertEq(_measure(payments, "150 payments, new providers"), _repeat(0x11, 150), "outcomes");
    }

    /// The payments for which the gas suffices settle. The remaining payments aren't tried, and nothing is lost.
    function test_gas_mostPaymentsThatFit() public {
        bytes memory outcomes = _measure(_payments(200, false), "");
        uint256 most;
        while (outcomes[most] == 0x11) ++most;
        vm.snapshotValue("settle", "most payments that fit when 200 are sent", most);
        for (uint256 i = most + 1; i < 200; ++i) vm.assertTrue(outcomes[i] == 0, "the rest isn't tried");
    }

    function test_gas_193PaymentsFit() public {
        vm.assertEq(_measure(_payments(193, false), ""), _repeat(0x11, 193), "outcomes");
    }

    /// Measures the gas that a second payment adds to a batch of one good payment, for each outcome of the second
    /// payment.
    function test_gas_eachOutcome() public {
        IBatchSettlement.Payment[] memory payments = new IBatchSettlement.Payment[](2);
        payments[0] = _pack(_terms(0));
        uint256 alone = _gasOf(_payments(1, false), hex"11");

        payments[1] = _pack(_terms(1));
        _snapshotOutcome("outcome 11", _gasOf(payments, hex"1111") - alone);

        Terms memory terms = _terms(1);
        terms.validBefore = NOW;
        payments[1] = _pack(terms);
        _snapshotOutcome("outcome 34, expired", _gasOf(payments, hex"1134") - alone);

        payments[1] = _pack(_terms(1));
        (payments[1].r, payments[1].vs) = (payments[0].r, payments[0].vs);
        _snapshotOutcome("outcome 34, bad signature", _gasOf(payments, hex"1134") - alone);

        terms = _terms(1);
        (terms.amount, terms.fee) = (1, 1 << 64);
        payments[1] = _pack(terms);
        _snapshotOutcome("outcome 13, no balance for the fee", _gasOf(payments, hex"1113") - alone);

        terms = _terms(1);
        payments[1] = _pack(terms);
        _submit(terms, _fee(terms));
        _snapshotOutcome("outcome 12", _gasOf(payments, hex"1112") - alone);
        _submit(terms, _provider(terms));
        _snapshotOutcome("outcome 22, after one that was not used", _gasOf(payments, hex"1122") - alone);

        (payments[0], payments[1]) = (payments[1], payments[0]);
        _snapshotOutcome("outcome 22, first or after one that was used", _gasOf(payments, hex"2211") - alone);
    }

    /// Measures the gas that a skipped payment adds after a failed payment.
    function test_gas_skipped() public {
        IBatchSettlement.Payment[] memory payments = _payments(3, true);
        payments[0] = _pack(_terms(1));
        (payments[1].r, payments[1].vs) = (payments[0].r, payments[0].vs);
        IBatchSettlement.Payment[] memory fewer = new IBatchSettlement.Payment[](2);
        (fewer[0], fewer[1]) = (payments[0], payments[1]);
        _snapshotOutcome("outcome 44", _gasOf(payments, hex"113444") - _gasOf(fewer, hex"1134"));
    }

    function _snapshotOutcome(string memory name, uint256 gas) private {
        vm.snapshotValue("outcomes", name, gas);
    }

    /// Returns the gas of the call alone, from a cold state, and reverts its effects.
    function _gasOf(IBatchSettlement.Payment[] memory payments, bytes memory expected) private returns (uint256 gas) {
        uint256 state = vm.snapshotState();
        _coolAll();
        uint256 gasBefore = gasleft();
        bytes memory outcomes = _settle(payments);
        gas = gasBefore - gasleft();
        vm.assertEq(outcomes, expected, "outcomes");
        vm.revertToState(state);
    }

    /// The most expensive authorization of a plain account. MIN_CALL_GAS must suffice for it.
    function test_gas_dearestAuthorization() public {
        Terms memory terms = _terms(0);
        Half memory half = Half(address(0xCAFE), terms.amount, terms.nonce);
        bytes memory signature = _sign(terms, half);
        _coolAll();
        uint256 gasBefore = gasleft();
        usdc.transferWithAuthorization(
            terms.from, half.to, half.value, terms.validAfter, terms.validBefore, half.nonce, signature
        );
        uint256 gasUsed = gasBefore - gasleft();
        vm.snapshotValue("outcomes", "dearest authorization of a plain account, all cold, new recipient", gasUsed);
        vm.assertLe(gasUsed, settlement.MIN_CALL_GAS() * 4 / 5, "at most four fifths of the minimum");
    }

    function test_gas_bytecodeSize() public {
        vm.snapshotValue("settle", "bytes of code", address(settlement).code.length);
    }
}
