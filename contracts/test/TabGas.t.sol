// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {TabTest} from "./support/TabTest.sol";

/// @notice Gas of a batch of tabs in the steady state: each account has received USDC before, each nonce is new, and
/// every slot is cold as at the start of a transaction. The numbers are committed in snapshots/ and checked in CI. They
/// are for whole transactions, with base cost and calldata, without gas refunds.
contract TabGasTest is TabTest {
    uint256 private constant PAYERS = 100;
    uint256 private constant PRICE = 123;

    function setUp() public override {
        super.setUp();
        delete splits;
        for (uint256 i; i < 100; ++i) {
            splits.push(_split(_provider(i), 19, 1));
            usdc.mint(_provider(i), 1);
        }
        for (uint256 i; i < PAYERS; ++i) usdc.mint(_buyer(i), 1e9);
    }

    function _provider(uint256 index) private pure returns (address) {
        return address(uint160(0xCAFE0000 + index));
    }

    /// Returns a bill for each payer: each payer made `requests` requests to each of `each` providers. There are `all`
    /// providers altogether.
    function _bills(uint256 all, uint256 each, uint256 requests) private returns (Bill[] memory bills) {
        while (splits.length > all) splits.pop();
        bills = new Bill[](PAYERS);
        for (uint256 i; i < PAYERS; ++i) {
            bills[i] = _bill(i);
            bills[i].lines = new Line[](each);
            for (uint256 k; k < each; ++k) bills[i].lines[k] = Line((i + k) % all, requests * PRICE);
        }
    }

    /// Returns the gas of the whole transaction.
    function _measure(Bill[] memory bills) private returns (uint256 gas) {
        bytes memory data = _call(_packTabs(bills));
        gas = 21_000;
        for (uint256 i; i < data.length; ++i) gas += data[i] == 0 ? 4 : 16;
        vm.cool(address(usdc));
        vm.cool(address(tabSettlement));
        vm.prank(KEEPER);
        uint256 gasBefore = gasleft();
        (bool success, bytes memory answer) = address(tabSettlement).call(data);
        gas += gasBefore - gasleft();
        vm.assertTrue(success, "settle");
        vm.assertEq(abi.decode(answer, (bytes)), _repeat(0x10, bills.length), "outcomes");
    }

    function _snapshot(uint256 all, uint256 each, uint256 requests, string memory name, uint256 most) private {
        uint256 gas = _measure(_bills(all, each, requests));
        uint256 ofRequest = gas / (PAYERS * each * requests);
        vm.snapshotValue("tabs", string.concat("100 payers, ", name), gas);
        vm.snapshotValue("tabs", string.concat("a request, ", name), ofRequest);
        vm.assertLe(ofRequest, most, "gas a request");
    }

    function test_gas_onePayer() public {
        Bill[] memory bills = _bills(1, 1, 10);
        vm.snapshotValue("tabs", "1 payer, 1 provider x 10 requests", _measure(_only(bills[0])));
    }

    function test_gas_oneProviderTenRequests() public {
        _snapshot(1, 1, 10, "1 provider x 10 requests", 5_000);
    }

    function test_gas_oneProviderFiftyRequests() public {
        _snapshot(1, 1, 50, "1 provider x 50 requests", 1_000);
    }

    function test_gas_fiveProvidersTenRequests() public {
        _snapshot(5, 5, 10, "5 providers x 10 requests", 1_050);
    }

    function test_gas_twentyProvidersTenRequests() public {
        _snapshot(20, 20, 10, "20 providers x 10 requests", 310);
    }

    function test_gas_twentyProvidersFiftyRequests() public {
        _snapshot(20, 20, 50, "20 providers x 50 requests", 62);
    }

    function test_gas_fiveOfTwentyProviders() public {
        _snapshot(20, 5, 10, "5 of 20 providers x 10 requests", 1_150);
    }

    function test_gas_twentyOfHundredProviders() public {
        _snapshot(100, 20, 10, "20 of 100 providers x 10 requests", 400);
    }

    /// MIN_PAYOUT_GAS must suffice for this payout: the account and its splitters never held a unit, and the account
    /// and the first splitter are blacklisted.
    function test_gas_dearestPayout() public {
        Bill memory bill = _bill(0);
        uint256[2] memory gas;
        for (uint256 i; i < 2; ++i) {
            uint256 state = vm.snapshotState();
            delete splits;
            bill.lines = new Line[](10 + i);
            for (uint256 k; k < bill.lines.length; ++k) {
                address account = address(uint160(0xB000 + k));
                splits.push(_split(account, 19, 1));
                bill.lines[k] = Line(k, 1_000);
                usdc.blacklist(account);
                usdc.blacklist(_refuge(account));
            }
            gas[i] = _measure(_only(bill));
            vm.revertToState(state);
        }
        vm.snapshotValue("tabs", "dearest payout, with its line", gas[1] - gas[0]);
        vm.assertLe(gas[1] - gas[0], tabSettlement.MIN_PAYOUT_GAS() * 4 / 5, "at most four fifths of the minimum");
    }

    function test_gas_bytecodeSize() public {
        vm.snapshotValue("tabs", "bytes of code", address(tabSettlement).code.length);
    }
}
